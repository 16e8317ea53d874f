"""Gates on any model, and units removed while it trains."""

from diffprune._pruner.gated_model import RemovalRecord as RemovalRecord
from diffprune._pruner.pruner import Pruner as Pruner
from diffprune._pruner.strengths import (
    by_macs as by_macs,
    by_parameters as by_parameters,
)

"""Gates on any model, and units removed while it trains."""

from diffprune.pruner.history import Shrinkage as Shrinkage
from diffprune.pruner.pruner import Pruner as Pruner
from diffprune.pruner.strengths import (
    by_macs as by_macs,
    by_parameters as by_parameters,
)

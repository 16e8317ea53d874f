"""Which units to keep, and how the others take over from those that leave."""

from diffprune._choice.allocation import Costs as Costs, allocate as allocate
from diffprune._choice.evidence import Batch as Batch, Loss as Loss, measure as measure
from diffprune._choice.refit import (
    ReaderFit as ReaderFit,
    Refit as Refit,
    refit_ as refit_,
)
from diffprune._choice.worth import Leaving as Leaving, order_units as order_units

"""What methods are called in records and tables; imports nothing."""

from typing import Final

OURS: Final = "diffprune"
GATED: Final = "diffprune, Pruner"
GATED_SCRATCH: Final = "diffprune, Pruner from scratch"
LOT: Final = "random units"
SCRATCH: Final = "uniform width, from scratch"
REFIT: Final = " + refit"
BY_HAND: Final = ("magnitude L1, by hand", "magnitude L2, by hand")
"""In place of Torch-Pruning's ways where it cannot cut a network."""

PEER: Final = "TP "
"""How the names of Torch-Pruning's ways begin."""

LASSO: Final = f"{PEER}group lasso"
CONCRETE: Final = "hard concrete"


def is_peer(name: str) -> bool:
    """Whether this is a choice of units that others make."""
    return name.startswith((PEER, CONCRETE, *BY_HAND))

"""Gradual magnitude pruning (Zhu and Gupta, 2017), of whole units.

The share of closed units grows along a cubic. Every hundred steps the units with the
smallest norms are closed anew, so a unit whose weights have grown returns.
"""

from typing import Final, final

import torch
from torch import Tensor, nn

from diffprune._core.types import Bool, Float
from diffprune.gates import BaseGate, named_gates
from paper.methods.group_lasso import LENET5, norms

EVERY: Final = 100


def share_closed(
    progress: float, final_share: float, begin: float, end: float
) -> float:
    """The share of units that are closed at some point of training.

    Args:
        progress: How much of the training is done, from zero to one.
        final_share: The share in the end.
        begin: When closing begins.
        end: When it ends.

    Examples:
        >>> share_closed(0.5, 0.8, 0.0, 1.0)
        0.7000000000000001
    """
    part = min(max((progress - begin) / (end - begin), 0.0), 1.0)
    return final_share * (1 - (1 - part) ** 3)


@final
class MagnitudeGate(BaseGate):
    """A gate that is open or closed as it was told last.

    Args:
        size: Number of units.
        share: Of them, closed in the end.
    """

    shared = frozenset({"counts"})

    def __init__(self, size: int, *, share: float) -> None:
        super().__init__()
        self.share = share
        self.open = nn.Parameter(torch.ones(size), requires_grad=False)
        self.register_buffer("counts", torch.tensor([float(size), 0.0]))

    counts: Float[Tensor, " 2"]
    """Units there were at first, and whether closing has ended."""

    @property
    def size(self) -> int:
        """Number of units."""
        return self.open.numel()

    @property
    def has_ended(self) -> bool:
        """Whether units have stopped closing and returning."""
        return bool(self.counts[1])

    def values(self) -> Float[Tensor, " units"]:
        """One for open units, zero for closed ones."""
        return self.open

    def margin(self) -> Float[Tensor, " units"]:
        """One for open units, zero for closed ones."""
        return self.open

    def penalty(self) -> Float[Tensor, ""]:
        """Nothing: the schedule closes units, not a price."""
        return self.open.new_zeros(())

    def reopening(self) -> Float[Tensor, " units"]:
        """One until closing has ended, because a unit may return."""
        return self.open.detach() if self.has_ended else torch.ones_like(self.open)

    @torch.no_grad()
    def close_smallest_(self, norms: Float[Tensor, " units"], progress: float) -> None:
        """Open all units but the smallest; as many are closed as the schedule says."""
        at_first = int(self.counts[0])
        closed = round(at_first * share_closed(progress, self.share, 0.0, 0.5))
        self.open.fill_(1.0)
        self.open[norms.argsort()[: min(closed, self.size - 1)]] = 0.0
        self.counts[1] = float(progress >= 0.5)

    @torch.no_grad()
    def end_with_(self, is_open: Bool[Tensor, " units"]) -> "MagnitudeGate":
        """Open these units, close all others, and stay so; returns the gate itself."""
        self.open.copy_(is_open)
        self.counts[1] = 1.0
        return self


@torch.no_grad()
def close_smallest_(model: nn.Module, progress: float) -> None:
    """Call every `EVERY` steps with LeNet-5; nothing happens once closing has ended."""
    for name, gate in named_gates(model, MagnitudeGate).items():
        if not gate.has_ended:
            slices = LENET5[name.removeprefix("gate_")]
            gate.close_smallest_(norms(model, slices), progress)

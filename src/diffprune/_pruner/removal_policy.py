"""Which units a removal keeps: the open ones, and closed ones that may open again.

A closed gate without noise or competition gets no gradient from the task, and the
penalty only pushes it further down. With noise it may be drawn open again, with
competition the others may lose to it: then its chance to do so decides.
"""

from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from diffprune._core.types import Int
from diffprune._core.user_warnings import warn
from diffprune._pruner.placement import Keep
from diffprune.gates import GateLike


@final
class RemovalPolicy:
    """Decides which closed units may go, and counts for how long they were closed.

    Args:
        gates: By name.
        kept: The units that are left of each, as they were numbered at first.
        reopen: A unit may go once it is open in the next step with a probability below
            this, and at once if it can never be.
        patience: Or once it was found closed so many times in a row.

    Attributes:
        looks: How often in a row each unit was found closed, by gate, as the units were
            numbered at first.
    """

    def __init__(
        self,
        gates: Mapping[str, GateLike],
        kept: Mapping[str, Int[Tensor, " left"]],
        reopen: float,
        patience: int,
    ) -> None:
        self._gates, self._kept = gates, kept
        self._reopen, self._patience = reopen, patience
        self.looks = {n: torch.zeros_like(numbers) for n, numbers in kept.items()}

    def keep(self) -> dict[str, Keep]:
        """Look at every gate: which of its units stay."""
        return {name: self._keep(name, gate) for name, gate in self._gates.items()}

    def _keep(self, name: str, gate: GateLike) -> Keep:
        is_open, numbers = gate.is_open().cpu(), self._kept[name]
        looks = torch.where(is_open, 0, self.looks[name][numbers] + 1)
        self.looks[name] = self.looks[name].index_copy(0, numbers, looks)
        reopening = gate.reopening().detach().cpu()
        may_go = (reopening <= 0) | (reopening < self._reopen)
        return is_open | ~(may_go | (looks >= self._patience))


def are_finite(tensors: Mapping[str, Tensor]) -> bool:
    """Whether numbers can be trusted; warns about the first that cannot."""
    broken = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if broken:
        warn(
            f"`{broken[0]}` holds NaN or infinite numbers; nothing is removed. Lower "
            "the learning rate, or check the loss.",
        )
    return not broken

"""When a closed unit may go: it cannot open again, or hardly. Knows gates, no model.

A closed gate without noise or competition gets no gradient from the task, and the
penalty only pushes it further down. With noise it may be drawn open again, with
competition the others may lose to it: then its chance to do so decides.
"""

import warnings
from collections.abc import Mapping
from typing import final

import torch
from torch import Tensor

from diffprune._core.types import Bool, Float
from diffprune.gates import Gate, functional as F


@final
class Patience:
    """Decides which closed units may go, and remembers for how long they were closed.

    Args:
        gates: By name.
        reopen: A unit may go once it is open in the next step with a probability below
            this.
        patience: Or once it was found closed so many times in a row.

    Attributes:
        looks: How often in a row each unit was found closed, by gate.
    """

    def __init__(self, gates: Mapping[str, Gate], reopen: float, patience: int) -> None:
        self._gates, self._reopen, self._patience = gates, reopen, patience
        self.looks = {
            name: torch.zeros(gate.size, dtype=torch.long)
            for name, gate in gates.items()
        }

    def look(self) -> dict[str, Bool[Tensor, " units"]]:
        """Closed units that cannot open, hardly can, or have not for long."""
        return {name: self._look(name, gate) for name, gate in self._gates.items()}

    def keep_(self, name: str, units: Bool[Tensor, " units"]) -> None:
        """Follow a removal of units."""
        self.looks[name] = self.looks[name][units]

    def _look(self, name: str, gate: Gate) -> Bool[Tensor, " units"]:
        closed = ~gate.is_open()
        self.looks[name] = torch.where(closed.cpu(), self.looks[name] + 1, 0)
        has_noise = gate.log_noise_var is not None or gate.base is not None
        if gate.u == "sigmoid" and not has_noise:
            return closed
        hardly = reopening_probability(gate) < self._reopen
        return closed & (
            hardly | (self.looks[name].to(closed.device) >= self._patience)
        )


@torch.no_grad()
def reopening_probability(gate: Gate) -> Float[Tensor, " units"]:
    """How likely a unit is open in the next step.

    With noise that is known: the chance that it is drawn open. Without, a unit that
    competes moves with the others; then it is the open probability of the penalty.

    Examples:
        >>> gate = Gate(4, dropout=0.5)
        >>> gate.logits.data[0] = -50.0  # however low, noise of its size flips its sign
        >>> reopening_probability(gate)[0].round(decimals=2)
        tensor(0.1600)
    """
    if gate.log_noise_var is None:
        return gate.prob_open()
    logits = gate.logits
    margin = F.margin(F.log_odds(logits, gate.u, gate.background), gate.threshold)
    noise_std = logits.abs() * torch.exp(gate.log_noise_var / 2)
    return torch.special.ndtr(margin / noise_std)


def are_finite(tensors: Mapping[str, Tensor]) -> bool:
    """Whether numbers can be trusted; warns about the first that cannot."""
    broken = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if broken:
        warnings.warn(
            f"`{broken[0]}` holds NaN or infinite numbers; nothing is removed. Lower "
            "the learning rate, or check the loss.",
            stacklevel=4,
        )
    return not broken

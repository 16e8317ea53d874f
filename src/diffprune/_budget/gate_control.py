"""Hold the units of a gate open, let them close, or set them by hand."""

import torch
from torch import Tensor

from diffprune._core.types import Bool
from diffprune.gates import Gate, functional as F
from diffprune.gates.gate import precise

_JUST_BELOW = 0.99
_JUST_OPEN = 0.01
_FAR = 20.0


@torch.no_grad()
def hold_open_(gate: Gate) -> None:
    """Keep every unit open, whatever its logit: nothing is below a threshold of zero.

    Values of open units do not depend on the threshold, and it is saved with the gate.
    """
    gate.threshold.zero_()


@torch.no_grad()
def let_close_(gate: Gate) -> None:
    """Let units close from now on; all of them are open at first."""
    activation = F.activate(precise(gate.logits), gate.u, precise(gate.background))
    gate.threshold.copy_(_JUST_BELOW * activation.min())


@torch.no_grad()
def open_units(gate: Gate) -> Bool[Tensor, " units"]:
    """Units that are open and that the data still has."""
    return gate.is_open().cpu() & is_present(gate)


def is_present(gate: Gate) -> Bool[Tensor, " units"]:
    """Which units the gated data still has."""
    if gate.index is None or gate.index.ndim > 1:
        return torch.ones(gate.size, dtype=torch.bool)
    nothing = torch.zeros(gate.size, dtype=torch.bool)
    return nothing.index_fill(0, gate.index.cpu(), value=True)


@torch.no_grad()
def set_open_(gate: Gate, units: Bool[Tensor, " units"]) -> None:
    """Make these units open and the others closed; what is so already stays."""
    units, logits = units.to(gate.logits.device), gate.logits
    margin = gate.margin().to(logits)
    lowest = torch.minimum(logits.min(), precise(gate.threshold).logit().min())
    logits.copy_(
        torch.where(units & (margin <= 0), logits + _JUST_OPEN - margin, logits)
    )
    logits.copy_(torch.where(~units & (margin > 0), lowest - _FAR, logits))

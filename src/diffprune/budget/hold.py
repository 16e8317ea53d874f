"""Gates that are held open, let go, or set by hand. Knows one gate at a time."""

import torch
from torch import Tensor

from diffprune._typing import Bool, Float
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
def scores(gate: Gate) -> Float[Tensor, " units"]:
    """How far each unit is from closing: a positive number of sigmas if it is open."""
    log_odds = F.log_odds(precise(gate.logits), gate.u, precise(gate.background))
    margin = F.margin(log_odds, precise(gate.threshold))
    return (margin / gate.sigma).double().cpu()


@torch.no_grad()
def set_open_(gate: Gate, units: Bool[Tensor, " units"]) -> None:
    """Make these units open and the others closed; what is so already stays."""
    units, logits = units.to(gate.logits.device), gate.logits
    margin = scores(gate).to(logits) * gate.sigma
    lowest = torch.minimum(logits.min(), precise(gate.threshold).logit().min())
    logits.copy_(
        torch.where(units & (margin <= 0), logits + _JUST_OPEN - margin, logits)
    )
    logits.copy_(torch.where(~units & (margin > 0), lowest - _FAR, logits))

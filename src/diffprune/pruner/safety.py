"""When a closed unit may go: it cannot open again, or hardly. Knows gates, no model.

A closed gate without noise or competition gets no gradient from the task, and the
penalty only pushes it further down. With noise it may be drawn open again, with
competition the others may lose to it: then its chance to do so decides.
"""

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor

from diffprune._typing import Bool, Float, Int
from diffprune.gates import Gate, functional as F


def closed_for_good(
    gate: Gate, reopen: float, looks: Int[Tensor, " units"], patience: int
) -> Bool[Tensor, " units"]:
    """Closed units that cannot open, hardly can, or have not for long.

    Args:
        gate: The gate.
        reopen: Open in the next step with a probability below this is hardly.
        looks: How often in a row each unit was found closed.
        patience: So many looks are long.
    """
    closed = ~gate.is_open()
    has_noise = gate.log_noise_var is not None or gate.base is not None
    if gate.u == "sigmoid" and not has_noise:
        return closed
    hardly = reopening_probability(gate) < reopen
    return closed & (hardly | (looks.to(closed.device) >= patience))


def looked(gate: Gate, looks: Int[Tensor, " units"]) -> Int[Tensor, " units"]:
    """Count how often in a row each unit was found closed, this time included."""
    return torch.where(gate.is_open().cpu(), 0, looks + 1)


@torch.no_grad()
def reopening_probability(gate: Gate) -> Float[Tensor, " units"]:
    """How likely a unit is open in the next step.

    With noise that is known: the chance that it is drawn open. Without, a unit that
    competes moves with the others; then it is the open probability of the penalty.

    Example:
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

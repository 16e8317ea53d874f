"""L0 regularisation with hard concrete gates (Louizos, Welling and Kingma, 2018).

A gate is a stretched binary concrete variable, clipped at zero and one. In training it
is drawn once per batch; in use it is the clipped sigmoid of its logit.
"""

import math
from typing import Final, final

import torch
from torch import Tensor, nn

from diffprune._core.types import Float
from diffprune.gates import BaseGate

TEMPERATURE: Final = 2 / 3
LOW: Final = -0.1
HIGH: Final = 1.1
_EPSILON: Final = 1e-6
_BOUND: Final = math.log(100.0)
_SHIFT: Final = TEMPERATURE * math.log(-LOW / HIGH)
"""What a logit has to exceed for its gate to be open half of the time."""
_CLOSED: Final = math.log(-LOW / HIGH)
"""The logit at which the gate in use becomes zero."""


def stretch(s: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """From (0, 1) to [0, 1], with the ends included.

    Examples:
        >>> stretch(torch.tensor([0.05, 0.5, 0.95]))
        tensor([0.0000, 0.5000, 1.0000])
    """
    return (s * (HIGH - LOW) + LOW).clamp(0.0, 1.0)


def prob_open(log_alpha: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The probability that a drawn gate is not zero."""
    return torch.sigmoid(log_alpha - _SHIFT)


@final
class HardConcrete(BaseGate):
    """A gate of L0 regularisation.

    Args:
        size: Number of units.
        dropout: The rate at which gates are closed at the start.
    """

    def __init__(self, size: int, *, dropout: float = 0.5) -> None:
        super().__init__()
        start = math.log((1 - dropout) / dropout)
        self.log_alpha = nn.Parameter(start + 0.01 * torch.randn(size))

    @property
    def size(self) -> int:
        """Number of units."""
        return self.log_alpha.numel()

    def values(self) -> Float[Tensor, " units"]:
        """What units are multiplied by: drawn in training, fixed in use."""
        log_alpha = self._bounded()
        if not self.training:
            return stretch(torch.sigmoid(log_alpha))
        u = torch.rand_like(log_alpha).clamp(_EPSILON, 1 - _EPSILON)
        return stretch(torch.sigmoid((torch.logit(u) + log_alpha) / TEMPERATURE))

    def margin(self) -> Float[Tensor, " units"]:
        """How far each logit is above the one at which the gate in use is zero."""
        return self._bounded() - _CLOSED

    def penalty(self) -> Float[Tensor, ""]:
        """The expected number of open units."""
        return prob_open(self._bounded()).clamp(_EPSILON, 1 - _EPSILON).sum()

    def reopening(self) -> Float[Tensor, " units"]:
        """The probability that a unit is drawn open in the next step."""
        return prob_open(self._bounded().detach())

    def _bounded(self) -> Float[Tensor, " units"]:
        """The logits, kept where the reference code clamps them after every step.

        The value is clamped and the gradient is not, so a logit at the bound can
        return.
        """
        log_alpha = self.log_alpha
        clamped = log_alpha.clamp(-_BOUND, _BOUND)
        return log_alpha + (clamped - log_alpha).detach()

"""MDR-ExpUni (Huang, Chen and Wu, 2020): a reconstruction from its abstract.

The abstract says that gates are a mixture of two densities that converge to zero and to
one, with a reparameterisation. The densities and the estimator here are those of
discrete variational autoencoders, whose smoother is called *exponential and uniform*,
too; exact zeros come from stretching, as with hard concrete gates. `sharpen_` lets the
densities converge: as long as they are wide, a closed unit still leaks a little in
training, and a layer of closed units that all leak can do without an open one. How fast
they converge is chosen here. What the paper really does could not be read, so its
published row is no target.
"""

from typing import Final, final

import torch
from torch import Tensor, nn

from diffprune._core.types import Float
from diffprune.gates import BaseGate, named_gates
from paper.methods.hard_concrete import HIGH, LOW, stretch

_WIDE: Final = 8.0
"""How fast the exponential parts fall at the start of a training."""
_NARROW: Final = 100.0
"""How fast they fall at its end."""
_SHARE: Final = 0.05
"""Of the uniform part of each density."""
_ZERO: Final = -LOW / (HIGH - LOW)
"""Below this the stretched gate is zero."""


def density(z: Float[Tensor, "..."], rate: Float[Tensor, ""]) -> Float[Tensor, "..."]:
    """The density near zero: exponential on [0, 1], and a little uniform."""
    falling = rate * (-rate * z).exp() / -torch.expm1(-rate)
    return (1 - _SHARE) * falling + _SHARE


def cumulative(
    z: Float[Tensor, "..."], rate: Float[Tensor, ""]
) -> Float[Tensor, "..."]:
    """The distribution function of `density`."""
    falling = torch.expm1(-rate * z) / torch.expm1(-rate)
    return (1 - _SHARE) * falling + _SHARE * z


def mean(rate: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """The mean of `density`."""
    falling = 1 / rate - (-rate).exp() / -torch.expm1(-rate)
    return (1 - _SHARE) * falling + _SHARE / 2


def quantile(u: Float[Tensor, "..."], rate: Float[Tensor, ""]) -> Float[Tensor, "..."]:
    """A draw from `density`, from two uniform numbers in one: which part, and where."""
    is_uniform = u < _SHARE
    within = torch.where(is_uniform, u / _SHARE, (u - _SHARE) / (1 - _SHARE))
    falling = torch.log1p(within * torch.expm1(-rate)) / -rate
    return torch.where(is_uniform, within, falling)


def sample(pi: Float[Tensor, "..."], rate: Float[Tensor, ""]) -> Float[Tensor, "..."]:
    """A draw from the mixture, with the gradient of implicit differentiation."""
    with torch.no_grad():
        near = quantile(torch.rand_like(pi), rate)
        z = torch.where(torch.rand_like(pi) < pi, 1 - near, near)
        below, above = cumulative(z, rate), 1 - cumulative(1 - z, rate)
        mixture = pi * density(1 - z, rate) + (1 - pi) * density(z, rate)
        slope = (below - above) / mixture
    return z + slope * (pi - pi.detach())


def prob_open(
    pi: Float[Tensor, "..."], rate: Float[Tensor, ""]
) -> Float[Tensor, "..."]:
    """The probability that the stretched gate is not zero."""
    edge = torch.tensor(_ZERO).to(pi)
    low, high = cumulative(edge, rate), 1 - cumulative(1 - edge, rate)
    return 1 - (1 - pi) * low - pi * high


@final
class MixtureGate(BaseGate):
    """A gate of the reconstruction, drawn once per batch.

    Args:
        size: Number of units.
        rate: How close the two densities are to zero and one at first.
    """

    def __init__(self, size: int, *, rate: float = _WIDE) -> None:
        super().__init__()
        self.register_buffer("rate", torch.tensor(rate))
        self.logits = nn.Parameter(1.0 + 0.01 * torch.randn(size))

    rate: Float[Tensor, ""]
    """How close the two densities are to zero and one."""

    @property
    def size(self) -> int:
        """Number of units."""
        return self.logits.numel()

    def values(self) -> Float[Tensor, " units"]:
        """A stretched draw in training; in use the stretched mean."""
        if self.training:
            return stretch(sample(self.logits.sigmoid(), self.rate))
        return self.margin().clamp(0.0, 1.0)

    def margin(self) -> Float[Tensor, " units"]:
        """The mean draw, stretched: what units are multiplied by in use, unless zero.

        As long as the densities are wide, no mean is small enough to be zero.
        """
        pi, near = self.logits.sigmoid(), mean(self.rate)
        return (pi * (1 - near) + (1 - pi) * near) * (HIGH - LOW) + LOW

    def penalty(self) -> Float[Tensor, ""]:
        """The expected number of open units."""
        return prob_open(self.logits.sigmoid(), self.rate).sum()

    def reopening(self) -> Float[Tensor, " units"]:
        """The probability that a unit is drawn open in the next step."""
        return prob_open(self.logits.detach().sigmoid(), self.rate)


def sharpen_(model: nn.Module, progress: float) -> None:
    """Bring the densities of all gates closer to zero and one, evenly on a log scale.

    Args:
        model: With gates of this file.
        progress: How much of the training is done, from zero to one.
    """
    for gate in named_gates(model, MixtureGate).values():
        gate.rate.fill_(_WIDE * (_NARROW / _WIDE) ** progress)

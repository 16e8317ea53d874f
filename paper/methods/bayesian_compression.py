"""Bayesian compression (Louizos, Ullrich and Welling, 2017): two priors on groups.

The gate of a unit is a random scale that its weights share. With the normal-Jeffreys
prior (GNJ) it is normal; with the horseshoe prior (GHS) it is log-normal, the product
of half-Cauchy scales of the unit and of its layer. The weights themselves are those of
`variational_layers.NormalWeights`.

A unit goes when its scale is noise rather than signal. While training lasts it still
takes part with its noise, so nothing is removed before the end.
"""

import math
from typing import Final, final

import torch
from torch import Tensor, nn

from diffprune._core.types import Bool, Float
from diffprune.gates import BaseGate
from paper.methods import log_uniform

GLOBAL_SCALE: Final = 1e-5
"""The scale of the horseshoe's Gamma prior for a layer, as in public code."""


class _RandomScale(BaseGate):
    """A scale that is drawn for every example."""

    per_example = True

    def reopening(self) -> Float[Tensor, " units"]:
        """One everywhere: a noisy unit takes part in training until the end."""
        return torch.ones(self.size)


@final
class NormalJeffreys(_RandomScale):
    """A normal scale with the prior 1 / |z|.

    Args:
        size: Number of units.
        threshold: Units whose log of variance over squared mean reaches it are closed.
    """

    def __init__(self, size: int, *, threshold: float = 0.0) -> None:
        super().__init__()
        self.threshold = threshold
        self.mean = nn.Parameter(1.0 + 0.01 * torch.randn(size))
        self.log_var = nn.Parameter(-9.0 + 0.01 * torch.randn(size))

    @property
    def size(self) -> int:
        """Number of units."""
        return self.mean.numel()

    def log_alpha(self) -> Float[Tensor, " units"]:
        """How noisy each scale is."""
        return log_uniform.log_alpha(self.mean, self.log_var)

    def draw(self, examples: int) -> Float[Tensor, "examples units"]:
        """One scale for every example and unit."""
        noise = torch.randn(examples, self.size).to(self.mean)
        return self.mean + (self.log_var / 2).exp() * noise

    def values(self) -> Float[Tensor, " units"]:
        """The mean scale; zero where the unit is closed."""
        return torch.where(self.is_open(), self.mean, 0.0)

    def margin(self) -> Float[Tensor, " units"]:
        """How much less noise there is than the threshold allows."""
        return self.threshold - self.log_alpha()

    def penalty(self) -> Float[Tensor, ""]:
        """The divergence from the prior, summed over units."""
        return log_uniform.divergence(self.log_alpha()).sum()


def gamma_divergence(
    m: Float[Tensor, "..."], v: Float[Tensor, "..."], scale: float = 1.0
) -> Float[Tensor, "..."]:
    """From a log-normal to the Gamma distribution of shape 1/2.

    Args:
        m: Mean of the logarithm.
        v: Variance of the logarithm.
        scale: That of the Gamma distribution.
    """
    entropy = 0.5 * (m + v.log() + 1 + math.log(2.0))
    return 0.5 * math.log(scale) + (m + v / 2).exp() / scale - entropy


def inverse_gamma_divergence(
    m: Float[Tensor, "..."], v: Float[Tensor, "..."]
) -> Float[Tensor, "..."]:
    """From a log-normal to the inverse Gamma distribution of shape 1/2 and scale 1."""
    return (v / 2 - m).exp() - 0.5 * (v.log() - m + 1 + math.log(2.0))


@final
class Horseshoe(_RandomScale):
    """A log-normal scale with half-Cauchy priors, of the unit and of the layer.

    A half-Cauchy variable is the root of a product of a Gamma and an inverse Gamma
    variable; each of the two has a log-normal posterior.

    Args:
        size: Number of units.
        global_scale: Scale of the layer's Gamma prior.
        threshold: Units whose negative log-mode reaches it are closed; by default the
            middle between the least and the greatest of the layer. The first cut fixes
            it, because the middle of what is left is another.
    """

    shared = frozenset({"layer_mean", "layer_log_var", "threshold"})

    def __init__(
        self,
        size: int,
        *,
        global_scale: float = GLOBAL_SCALE,
        threshold: float | None = None,
    ) -> None:
        super().__init__()
        self.global_scale = global_scale
        fixed = math.nan if threshold is None else threshold
        self.register_buffer("threshold", torch.tensor(fixed))
        self.mean = nn.Parameter(torch.zeros(size, 2))  # Gamma, inverse Gamma
        self.log_var = nn.Parameter(torch.full((size, 2), -9.0))
        self.layer_mean = nn.Parameter(torch.tensor([-3.0, 0.0]))
        self.layer_log_var = nn.Parameter(torch.full((2,), -9.0))

    threshold: Float[Tensor, ""]
    """Not a number as long as it is the middle."""

    @property
    def size(self) -> int:
        """Number of units."""
        return len(self.mean)

    def log_scale(self) -> tuple[Float[Tensor, " units"], Float[Tensor, " units"]]:
        """Mean and variance of the logarithm of each scale."""
        mean = (self.mean.sum(1) + self.layer_mean.sum()) / 2
        variance = self.log_var.exp().sum(1) + self.layer_log_var.exp().sum()
        return mean, variance / 4

    def draw(self, examples: int) -> Float[Tensor, "examples units"]:
        """One scale for every example and unit; that of the layer is drawn once."""
        mean, _ = self.log_scale()
        of_units = (self.log_var.exp().sum(1) / 4).sqrt()
        of_layer = (self.layer_log_var.exp().sum() / 4).sqrt()
        noise = torch.randn(examples, self.size).to(mean)
        together = torch.randn(examples, 1).to(mean)
        return (mean + of_units * noise + of_layer * together).exp()

    def values(self) -> Float[Tensor, " units"]:
        """The median scale; zero where the unit is closed."""
        mean, _ = self.log_scale()
        return torch.where(self.is_open(), mean.exp(), 0.0)

    def margin(self) -> Float[Tensor, " units"]:
        """How far the log-mode of each scale is above what counts as closed."""
        mean, variance = self.log_scale()
        level = variance - mean
        return self._bound(level.detach()) - level

    def keep_(self, mask: Bool[Tensor, " units"]) -> None:
        """Forget the units outside `mask`; those that stay are open as they were."""
        mean, variance = self.log_scale()
        bound = self._bound((variance - mean).detach())
        super().keep_(mask)
        self.threshold = bound

    def _bound(self, level: Float[Tensor, " units"]) -> Float[Tensor, ""]:
        """The negative log-mode at which units are closed."""
        least, greatest = level.min(), level.max()
        # A layer whose units are all alike has nothing to tell apart.
        is_told_apart = greatest - least >= _ALIKE
        middle = torch.where(is_told_apart, (least + greatest) / 2, greatest + _ALIKE)
        return torch.where(self.threshold.isnan(), middle, self.threshold)

    def penalty(self) -> Float[Tensor, ""]:
        """The divergence from the priors, of units and layer."""
        (m_gamma, m_inverse), (v_gamma, v_inverse) = (
            self.mean.unbind(1),
            self.log_var.exp().unbind(1),
        )
        units = gamma_divergence(m_gamma, v_gamma)
        units = units + inverse_gamma_divergence(m_inverse, v_inverse)
        m, v = self.layer_mean, self.layer_log_var.exp()
        layer = gamma_divergence(m[0], v[0], self.global_scale)
        return units.sum() + layer + inverse_gamma_divergence(m[1], v[1])


_ALIKE: Final = 1.0
"""Log-modes of one layer that differ by less are those of open units."""

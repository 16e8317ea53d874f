"""Structured Bayesian pruning (Neklyudov et al., 2017): log-normal noise on units.

The prior of a gate is log-uniform on [exp(-20), 1], its posterior a log-normal that is
truncated to the same interval. A unit is kept if its gate's mean exceeds its standard
deviation.
"""

import math
from typing import Final, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.special import erfcx, log_ndtr, ndtr, ndtri

from diffprune._core.types import Float
from diffprune.gates import BaseGate

A: Final = -20.0
B: Final = 0.0
_EPSILON: Final = 1e-5
_SQRT2: Final = math.sqrt(2.0)


class Posterior(NamedTuple):
    """A truncated log-normal: location, scale, and the interval in units of it."""

    mu: Float[Tensor, "..."]
    sigma: Float[Tensor, "..."]
    alpha: Float[Tensor, "..."]
    beta: Float[Tensor, "..."]
    log_mass: Float[Tensor, "..."]
    """Logarithm of what the interval holds of the normal."""


def posterior(mu: Float[Tensor, "..."], log_sigma: Float[Tensor, "..."]) -> Posterior:
    """The truncated log-normal of these parameters."""
    mu, sigma = mu.clamp(-20.0, 5.0), log_sigma.clamp(-20.0, 5.0).exp()
    alpha, beta = (A - mu) / sigma, (B - mu) / sigma
    above = log_ndtr(alpha) - log_ndtr(beta)  # at most zero
    log_mass = log_ndtr(beta) + torch.log1p(-above.exp())
    return Posterior(mu, sigma, alpha, beta, log_mass)


def divergence(q: Posterior) -> Float[Tensor, "..."]:
    """The divergence of each posterior from the log-uniform prior."""
    log_alpha_pdf, log_beta_pdf = _log_pdf(q.alpha), _log_pdf(q.beta)
    slope = q.alpha * (log_alpha_pdf - q.log_mass).exp()
    slope = slope - q.beta * (log_beta_pdf - q.log_mass).exp()
    constant = math.log(B - A) - 0.5 * math.log(2 * math.pi * math.e)
    return constant - q.sigma.log() - q.log_mass - slope / 2


def moment(q: Posterior, power: int) -> Float[Tensor, "..."]:
    """The mean of a power of the gate; in double precision, without gradients."""
    _, sigma, alpha, beta, log_mass = (x.detach().double() for x in q)
    shift = power * sigma
    upper = erfcx((shift - beta) / _SQRT2) * (power * B - beta.square() / 2).exp()
    lower = erfcx((shift - alpha) / _SQRT2) * (power * A - alpha.square() / 2).exp()
    return (upper - lower) / (2 * log_mass.exp())


def signal_to_noise(q: Posterior) -> Float[Tensor, "..."]:
    """The mean of the gate over its standard deviation."""
    mean = moment(q, 1)
    variance = (moment(q, 2) - mean.square()).clamp(min=1e-30)
    return mean / variance.sqrt()


def _log_pdf(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    return -x.square() / 2 - math.log(math.sqrt(2 * math.pi))


@final
class LogNormalGate(BaseGate):
    """A gate of structured Bayesian pruning, drawn once per batch.

    Args:
        size: Number of units.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.mu = nn.Parameter(torch.zeros(size))
        self.log_sigma = nn.Parameter(torch.full((size,), -5.0))

    @property
    def size(self) -> int:
        """Number of units."""
        return self.mu.numel()

    def values(self) -> Float[Tensor, " units"]:
        """What units are multiplied by: drawn in training, in use a mean or zero."""
        q = posterior(self.mu, self.log_sigma)
        if not self.training:
            return torch.where(self.is_open(), moment(q, 1).to(self.mu), 0.0)
        below, mass = ndtr(q.alpha), q.log_mass.exp()
        level = below + torch.rand_like(q.mu) * mass
        level = level.clamp(_EPSILON, 1 - _EPSILON)
        return (q.mu + q.sigma * ndtri(level)).clamp(A, B).exp()

    def margin(self) -> Float[Tensor, " units"]:
        """The logarithm of the signal-to-noise ratio."""
        q = posterior(self.mu, self.log_sigma)
        return signal_to_noise(q).log().to(self.mu)

    def penalty(self) -> Float[Tensor, ""]:
        """The divergence from the prior, summed over units."""
        return divergence(posterior(self.mu, self.log_sigma)).sum()

    def reopening(self) -> Float[Tensor, " units"]:
        """One everywhere: a noisy unit takes part in training until the end."""
        return torch.ones_like(self.mu).detach()

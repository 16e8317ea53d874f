"""Generalized dropout (Srinivas and Babu, 2016): gates that are drawn open or closed.

A unit is open with a learned probability, which has a Beta prior that pulls it to zero
or one. Two estimators carry gradients through the draw: *straight through*, as in the
paper, and a *relaxed* draw, as in the only public code. The prior's constants are those
of that code; the paper's own could not be found.
"""

import math
from typing import Final, Literal, final

import torch
from torch import Tensor, nn

from diffprune._core.types import Float
from diffprune.gates import BaseGate

Estimator = Literal["straight-through", "relaxed"]

_EPSILON: Final = 1e-6
_TEMPERATURE: Final = 0.1
_START: Final = 0.6321
"""As in public code. Above 2/3 its prior would pull every unit open."""
_CLOSED: Final[dict[Estimator, float]] = {"straight-through": 0.5, "relaxed": 1e-3}


def beta_penalty(k: Float[Tensor, "..."], a: float, b: float) -> Float[Tensor, "..."]:
    """Minus the logarithm of the Beta density, at probabilities away from the ends."""
    k = k.clamp(_EPSILON, 1 - _EPSILON)
    log_beta = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return (1 - a) * torch.log(k) + (1 - b) * torch.log1p(-k) + log_beta


@final
class GeneralizedDropout(BaseGate):
    """A gate that is drawn for every example.

    Args:
        size: Number of units.
        estimator: How gradients pass the draw.
        a: First constant of the Beta prior.
        b: Second constant of the Beta prior.
    """

    per_example = True

    def __init__(
        self,
        size: int,
        *,
        estimator: Estimator = "relaxed",
        a: float = 1e-4,
        b: float = 0.5,
    ) -> None:
        super().__init__()
        self.estimator: Estimator = estimator
        self.a, self.b = a, b
        k = torch.full((size,), _START)
        self.logits = nn.Parameter(k if estimator == "straight-through" else k.logit())

    @property
    def size(self) -> int:
        """Number of units."""
        return self.logits.numel()

    def probabilities(self) -> Float[Tensor, " units"]:
        """How likely each unit is open."""
        return self.logits.sigmoid() if self.estimator == "relaxed" else self.logits

    def draw(self, examples: int) -> Float[Tensor, "examples units"]:
        """One draw for each example."""
        k = self.probabilities().expand(examples, -1)
        u = torch.rand_like(k).clamp(_EPSILON, 1 - _EPSILON)
        if self.estimator == "straight-through":
            return (u < k).to(k) + k - k.detach()
        return torch.sigmoid((torch.logit(u) + self.logits) / _TEMPERATURE)

    def values(self) -> Float[Tensor, " units"]:
        """What units are multiplied by in use: their probability, or nothing."""
        k = self.probabilities()
        kept = (k > 0.5).to(k) if self.estimator == "straight-through" else k
        return torch.where(self.is_open(), kept, 0.0)

    def margin(self) -> Float[Tensor, " units"]:
        """How far each probability is above the one that counts as closed."""
        return self.probabilities() - _CLOSED[self.estimator]

    def penalty(self) -> Float[Tensor, ""]:
        """Minus the logarithm of the prior, summed over units."""
        return beta_penalty(self.probabilities(), self.a, self.b).sum()

    def reopening(self) -> Float[Tensor, " units"]:
        """The probability that a unit is drawn open for the next example."""
        return self.probabilities().detach()

    @torch.no_grad()
    def clip_(self) -> None:
        """Keep what is itself a probability in its range, after a step."""
        if self.estimator == "straight-through":
            self.logits.clamp_(_EPSILON, 1 - _EPSILON)

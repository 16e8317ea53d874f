"""Approximate Bernoulli distributions over any base."""

from collections.abc import Sequence
from typing import Self, cast

import torch
from torch import Size, Tensor
from torch.distributions import (
    Distribution,
    Independent,
    LowRankMultivariateNormal,
    MultivariateNormal,
    Normal,
    constraints,
)

from diffprune._core.door import door
from diffprune._core.types import Bool, Extended, Float, Natural
from diffprune.errors import ArgumentError
from diffprune.gates import checks
from diffprune.gates.functional import Activation, softmax_log_odds
from diffprune.gates.transform import g

_GAUSSIAN = (MultivariateNormal, LowRankMultivariateNormal)


class ApproximateBernoulli(Distribution):
    r"""What `g` makes of a base distribution: exact zeros, and values of mean one.

    Args:
        base: Any distribution over real vectors. Without an event dimension of its own,
            its last batch dimension becomes the units.
        u: Maps a sample into (0, 1): `"sigmoid"`, `"softmax"` or a callable.
        threshold: The paper's $\beta$, one number or one per unit.
        sharpness: The paper's $\zeta \ge 0$; the larger, the closer to binary.
        validate_args: As for every distribution of torch.

    Examples:
        >>> base = torch.distributions.Normal(torch.tensor([-1.0, 0.0, 1.0]), 1.0)
        >>> gates = ApproximateBernoulli(base, threshold=0.5)
        >>> gates.event_shape, gates.prob_open()
        (torch.Size([3]), tensor([0.1587, 0.5000, 0.8413]))
    """

    # Properties of the base class, constants of this one: torch's own convention.
    arg_constraints = {  # noqa: RUF012  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
        "threshold": constraints.unit_interval,
        "sharpness": constraints.nonnegative,
    }

    @door
    def __init__(
        self,
        base: Distribution,
        u: Activation = "sigmoid",
        threshold: float | Float[Tensor, "#units"] = 0.5,
        sharpness: Extended | Float[Tensor, ""] = 0.0,
        *,
        validate_args: bool | None = None,
    ) -> None:
        checks.check_parameter("threshold", threshold, most=1.0)
        checks.check_parameter("sharpness", sharpness)
        self.base = _with_units(base)
        shape = self.base.batch_shape + self.base.event_shape
        checks.check_spread(shape, threshold=threshold, sharpness=sharpness)
        self.u: Activation = u
        self.threshold = _tensor(threshold)
        self.sharpness = _tensor(sharpness)
        super().__init__(
            self.base.batch_shape, self.base.event_shape, validate_args=validate_args
        )

    @property
    def has_rsample(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Whether samples carry gradients to the parameters of the base."""
        return self.base.has_rsample

    @property
    def support(self) -> constraints.Constraint:
        """Zero, or closer to one than the sharpness allows to deviate."""
        return _ZeroOrNearOne(self.sharpness.neg().exp())

    @door
    def rsample(self, sample_shape: Sequence[Natural] = ()) -> Float[Tensor, "..."]:
        """Draw samples that carry gradients; the base must be able to."""
        sample = self.base.rsample(Size(sample_shape))
        return g(sample, self.u, self.threshold, self.sharpness)

    @door
    @torch.no_grad()
    def sample(self, sample_shape: Sequence[Natural] = ()) -> Float[Tensor, "..."]:
        """Draw samples without gradients, from any base."""
        sample = self.base.sample(Size(sample_shape))
        return g(sample, self.u, self.threshold, self.sharpness)

    @door
    def prob_open(
        self, others: Float[Tensor, "*batch units"] | None = None
    ) -> Float[Tensor, "*batch units"]:
        """P(z > 0): marginal for sigmoid, given all other samples for softmax.

        Args:
            others: For softmax, a sample $s$ of the base: the probability of unit k is
                conditional on the entries of all units but k.
        """
        if callable(self.u):
            raise NotImplementedError(
                "prob_open() has no closed form for a callable u.\n"
                "Estimate it: (gates.sample((10_000,)) > 0).float().mean(0)"
            )
        if others is not None:
            checks.check_others(others, self.event_shape)
        cut = self.threshold.logit().expand(self._extended_shape())
        if self.u == "sigmoid":
            return prob_above(self.base, cut)
        if others is None:
            raise ArgumentError(
                "softmax gates depend on one another, so prob_open() needs the sample "
                "to condition on.\nPass one: gates.prob_open(others=gates.base.mean)"
            )
        rivals = others - softmax_log_odds(others, others.new_full((), -torch.inf))
        return prob_above(self.base, cut + rivals, others)

    @door
    def expand(
        self, batch_shape: Sequence[Natural], _instance: Self | None = None
    ) -> Self:
        """Repeat the gates over a larger batch, without copying."""
        new = cast("Self", self._get_checked_instance(ApproximateBernoulli, _instance))
        new.base = self.base.expand(Size(batch_shape))
        new.u, new.threshold, new.sharpness = self.u, self.threshold, self.sharpness
        Distribution.__init__(
            new, new.base.batch_shape, new.base.event_shape, validate_args=False
        )
        new._validate_args = self._validate_args  # noqa: SLF001 - torch's own pattern
        return new


def _tensor(value: float | Tensor) -> Tensor:
    return value if isinstance(value, Tensor) else torch.tensor(float(value))


def prob_above(
    base: Distribution,
    cut: Float[Tensor, "*batch units"],
    others: Float[Tensor, "*batch units"] | None = None,
) -> Float[Tensor, "*batch units"]:
    """P(s_k > cut_k) of each unit k on its own, or given the `others`."""
    units = _marginals(base) if others is None else _conditionals(base, others)
    try:
        below = units.cdf(cut)
    except NotImplementedError as error:
        raise NotImplementedError(
            f"prob_open() needs the cdf of {type(units).__name__}, which has none.\n"
            "Estimate it: (gates.sample((10_000,)) > 0).float().mean(0)"
        ) from error
    if below.shape != cut.shape:
        raise ArgumentError(
            f"the cdf of {type(units).__name__} must return one number per unit, "
            f"shape {tuple(cut.shape)}, but returned {tuple(below.shape)}."
        )
    return 1 - below


class _ZeroOrNearOne(constraints.Constraint):
    event_dim = 1  # pyright: ignore[reportIncompatibleMethodOverride, reportAssignmentType]

    def __init__(self, radius: Float[Tensor, ""]) -> None:
        self.radius = radius
        super().__init__()

    def check(self, value: Float[Tensor, "*batch units"]) -> Bool[Tensor, "*batch"]:
        near_one = (value > 0) & ((value - 1).abs() <= self.radius)
        return ((value == 0) | near_one).all(-1)


def _with_units(base: Distribution) -> Distribution:
    """The base with exactly one event dimension: the units."""
    if len(base.event_shape) == 1:
        return base
    if len(base.event_shape) > 1 or not base.batch_shape:
        raise ArgumentError(
            "the base of ApproximateBernoulli needs one dimension of units, got "
            f"batch shape {tuple(base.batch_shape)} and event shape "
            f"{tuple(base.event_shape)}.\n"
            "Give its parameters a last dimension with one entry per unit."
        )
    return Independent(base, 1)


def _marginals(base: Distribution) -> Distribution:
    """A distribution whose cdf is elementwise: one number per unit."""
    if isinstance(base, Independent):
        return base.base_dist
    if isinstance(base, _GAUSSIAN):
        return Normal(base.mean, base.variance.sqrt())
    return base


def _conditionals(
    base: Distribution, others: Float[Tensor, "*batch units"]
) -> Distribution:
    """Each unit's distribution, given the samples of all others."""
    if not isinstance(base, _GAUSSIAN):
        return _marginals(base)
    precision = base.precision_matrix
    own = precision.diagonal(dim1=-2, dim2=-1)
    pull = (precision @ (others - base.mean).unsqueeze(-1)).squeeze(-1)
    return Normal(others - pull / own, own.rsqrt())

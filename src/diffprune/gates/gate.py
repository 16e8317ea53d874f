"""`Gate`: a module with one value per unit, exactly zero when the unit is closed."""

import math
from collections.abc import Callable
from typing import Any, Literal, final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from diffprune._core.door import door
from diffprune._core.types import Bool, Count, Extended, Float, Int, Natural
from diffprune.gates import checks, functional as F
from diffprune.gates.base import BaseGate
from diffprune.gates.distribution import prob_above
from diffprune.gates.topk import largest
from diffprune.gates.transform import Origin, is_open, transform


@final
class Gate(BaseGate):
    """One differentiable value per unit, exactly zero when the unit is closed.

    By default a gate is deterministic: its values are the maximum-likelihood point of
    the distribution in the paper.

    Args:
        size: Number of units. All of them are open at first.
        u: `"sigmoid"` (units are independent), `"softmax"` (units compete), or a
            callable into (0, 1), whose log-odds then decide the open probability.
        sigma: Standard deviation of the logits that `prob_open` assumes.
        dropout: Rate in (0, 1) of Gaussian dropout on the logits, in training only.
        learn_dropout: Whether that rate is learned.
        sharpness: First value of the paper's zeta. The larger zeta is, the closer open
            values are to one.
        learn_sharpness: Whether zeta is learned. Where it is infinite, and the gate
            binary, it is not.
        init_std: Spread of the truncated normal that the logits start from.
        beta_margin: The threshold, as a fraction of the smallest initial activation.
        dim: First dimension of the input that the gate covers.
        base: A function that makes a distribution from the logits, such as
            `partial(Normal, scale=1.0)`. In training the gate then draws from it, and
            `prob_open` is computed from it.
        index: For each element the unit that it belongs to; its shape covers the
            dimensions of the input from `dim` on. By default each element is a unit.
        min_open: So many units with the largest log-odds never close. If log-odds are
            equal, the unit with the smaller number stays open.
        start: With `"one"`, every value is exactly one at first, whatever the logits
            are, so gates do not change a trained model. With `"paper"`, the first
            values differ from one as the logits differ. Later changes are the same.

    Examples:
        >>> gate = Gate(3)
        >>> gate(torch.ones(2, 3)).shape, gate.is_open()
        (torch.Size([2, 3]), tensor([True, True, True]))
    """

    threshold: Float[Tensor, "#units"]
    background: Float[Tensor, ""]
    raw_sharpness: Float[Tensor, " 1"]
    log_noise_var: Float[Tensor, " 1"] | None
    origin: Float[Tensor, " units"] | None
    origin_background: Float[Tensor, ""] | None
    shared = frozenset({"raw_sharpness", "log_noise_var"})

    @door
    def __init__(  # noqa: PLR0913 - every default but the start is the paper's
        self,
        size: Count,
        *,
        u: F.Activation = "sigmoid",
        sigma: float = 1.0,
        dropout: float | None = None,
        learn_dropout: bool = True,
        sharpness: Extended = 0.0,
        learn_sharpness: bool = True,
        init_std: float = 0.05,
        beta_margin: float = 0.99,
        dim: int = 1,
        base: Callable[[Tensor], Distribution] | None = None,
        index: Int[Tensor, "..."] | None = None,
        min_open: Natural = 2,
        start: Literal["one", "paper"] = "one",
    ) -> None:
        super().__init__(dim=dim, index=index)
        checks.check_units(size, u, index)
        checks.check_ranges(sigma, dropout, init_std, beta_margin)
        checks.check_base(base, u, dropout, size)
        self.u: F.Activation = u
        self.sigma, self.base, self.min_open = sigma, base, min_open
        bound = 2 * init_std
        self.logits = nn.Parameter(
            nn.init.trunc_normal_(torch.empty(size), std=init_std, a=-bound, b=bound)
        )
        learned = learn_sharpness and sharpness < math.inf
        self._state("raw_sharpness", sharpness, learned=learned)
        rate = None if dropout is None else math.log(dropout / (1 - dropout))
        self._state("log_noise_var", rate, learned=learn_dropout)
        self.register_buffer("background", torch.tensor(-torch.inf))
        is_moved = start == "paper"
        self.register_buffer(
            "origin", None if is_moved else self.logits.detach().clone()
        )
        nothing = None if is_moved else self.background.clone()
        self.register_buffer("origin_background", nothing)
        # Just below the weakest unit: training starts from the whole model.
        activation = F.activate(self.logits.detach(), u, self.background)
        checks.check_activation(activation)
        self.register_buffer("threshold", beta_margin * activation.min())

    def _state(self, name: str, value: float | None, *, learned: bool) -> None:
        # Of one dimension: what shards parameters takes no scalars.
        tensor = None if value is None else torch.tensor([float(value)])
        if learned and tensor is not None:
            self.register_parameter(name, nn.Parameter(tensor))
        else:
            self.register_buffer(name, tensor)

    @property
    def size(self) -> int:
        """Number of units the gate still decides about."""
        return self.logits.numel()

    @property
    def sharpness(self) -> Float[Tensor, ""]:
        """The paper's zeta."""
        return F.reflect(self.raw_sharpness).squeeze(-1)

    def values(self) -> Float[Tensor, " units"]:
        """The gate values z: zero for closed units, of mean one over the open ones."""
        values = transform(
            self.sample(),
            self.u,
            precise(self.background),
            precise(self.threshold),
            precise(self.sharpness).neg().exp(),
            min_open=self.min_open,
            origin=self._origin(),
        )
        return values.to(self.logits.dtype)

    def _origin(self) -> Origin | None:
        if self.origin is None or self.origin_background is None:
            return None
        return Origin(precise(self.origin), precise(self.origin_background))

    def sample(self) -> Float[Tensor, " units"]:
        """What the values are computed from: the logits, in training with noise."""
        logits = precise(self.logits)
        if not self.training:
            return logits
        if self.base is not None:
            return self.base(logits).rsample()
        if self.log_noise_var is not None:
            noise_std = torch.exp(precise(self.log_noise_var) / 2)
            return logits * (1 + noise_std * torch.randn_like(logits))
        return logits

    @torch.no_grad()
    def is_open(self) -> Bool[Tensor, " units"]:
        """Which units are open, noise aside."""
        logits = precise(self.logits)
        activation = F.activate(logits, self.u, precise(self.background))
        threshold = precise(self.threshold)
        return is_open(logits, activation, self.u, threshold, min_open=self.min_open)

    def margin(self) -> Float[Tensor, " units"]:
        """Signed distance of each unit from the threshold, in log-odds."""
        return F.margin(self._log_odds(), precise(self.threshold))

    def _log_odds(self) -> Float[Tensor, " units"]:
        return F.log_odds(precise(self.logits), self.u, precise(self.background))

    def penalty(self) -> Float[Tensor, ""]:
        """Expected number of open units, differentiable."""
        return self.prob_open().sum()

    def prob_open(self) -> Float[Tensor, " units"]:
        """P(z > 0), differentiable; a constant one for units that the floor holds."""
        log_odds = self._log_odds()
        margin = F.margin(log_odds, precise(self.threshold))
        if self.base is None:
            probability = F.open_probability(margin, self.sigma)
        else:
            logits = precise(self.logits)
            probability = prob_above(self.base(logits), logits - margin, logits)
        held = torch.zeros_like(margin, dtype=torch.bool)
        held = held.scatter(-1, largest(log_odds.detach(), self.min_open), value=True)
        # The penalty must not push on units that cannot close.
        held = held & ((margin > 0).sum() <= self.min_open)
        return probability.masked_fill(held, 1.0).to(self.logits.dtype)

    @torch.no_grad()
    def reopening(self) -> Float[Tensor, " units"]:
        """How likely each unit is open in the next step; zero where it cannot be.

        A closed sigmoid unit without noise gets no gradient from the task, and the
        penalty only pushes it further down. With noise it is the chance that it is
        drawn open. A unit that competes moves with the others: then it is the open
        probability.

        Examples:
            >>> gate = Gate(4, dropout=0.5)
            >>> gate.logits.data[0] = -50.0  # noise of its own size flips its sign
            >>> gate.reopening()[0].round(decimals=2)
            tensor(0.1600)
        """
        if self.log_noise_var is not None:
            noise_std = self.logits.abs() * torch.exp(self.log_noise_var / 2)
            return torch.special.ndtr(self.margin() / noise_std)
        if self.u == "sigmoid" and self.base is None:
            return self.is_open().to(self.logits)
        return self.prob_open()

    @torch.no_grad()
    def at_floor(self) -> bool:
        """Whether only units are open that `min_open` does not allow to close."""
        return int(self.is_open().sum()) <= self.min_open

    @torch.no_grad()
    def keep_(self, mask: Bool[Tensor, " units"]) -> None:
        """Forget the units outside `mask`; the values of the others do not change.

        That holds when closed units are removed: an open one takes part in the mean.
        With an `index` of one dimension the elements of removed units go as well.
        """
        logits, origin = self.logits, self.origin
        super().keep_(mask)
        removed = logits[~mask].logsumexp(0)  # -inf when nothing is removed
        self.background = torch.logaddexp(self.background, removed)
        if origin is not None and self.origin_background is not None:
            moved = (logits - origin)[~mask].logsumexp(0)
            self.origin_background = torch.logaddexp(self.origin_background, moved)

    def extra_repr(self) -> str:
        """Size and activation, for `print`."""
        return f"{self.size}, u={self.u!r}, dim={self.dim}, min_open={self.min_open}"

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        *args: Any,  # noqa: ANN401 - handed on to torch as they are
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """Take a threshold per unit, if that was saved."""
        threshold = state_dict.get(prefix + "threshold", self.threshold)
        if threshold.shape != self.threshold.shape:
            self.threshold = self.threshold.new_empty(threshold.shape)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def precise(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """At least single precision: in bfloat16 the margin of a new gate rounds away."""
    # Asking first is cheaper than a conversion that does nothing.
    is_precise = x.dtype in (torch.float32, torch.float64)
    return x if is_precise else x.to(torch.promote_types(x.dtype, torch.float32))

"""A budget of a certain model: what it costs, may cost, and must. Knows no gates."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import torch
from torch import Tensor

from diffprune._budget.budget import Amount, Budget, absolute, is_fraction
from diffprune._core.types import Float
from diffprune._costs.counts import file_size, macs, memory, parameters
from diffprune._costs.latency import latency
from diffprune._costs.network import Network
from diffprune.errors import ArgumentError

Widths: TypeAlias = Float[Tensor, " groups"]
Cost: TypeAlias = Callable[[Widths], Float[Tensor, ""]]

COSTS: Final[Mapping[str, Callable[[Network], Cost]]] = {
    "macs": macs,
    "params": parameters,
    "memory": memory,
    "size": file_size,
    "latency": latency,
}


@dataclass(frozen=True)
class Measured:
    """What a model costs now, and what the whole of it would cost now."""

    cost: float
    whole: float


@dataclass(frozen=True)
class Limit:
    """One cost, and how much of it is allowed.

    Attributes:
        name: What `Budget` calls it.
        asked: The amount as it was written.
        predicted: From widths to what they should cost.
        whole: What the whole model costs.
        most: What is allowed.
        factor: How much more they cost than that, where it was measured.
    """

    name: str
    asked: Amount
    predicted: Cost
    whole: float
    most: float
    factor: float = 1.0

    def cost(self, widths: Widths) -> Float[Tensor, ""]:
        """What widths cost."""
        return self.factor * self.predicted(widths)

    def measured(self, widths: Widths, now: Measured | None) -> "Limit":
        """A limit that knows what these widths cost now; others are in proportion.

        Where a part of the whole was asked for, the part counts: the whole may cost
        another amount today than it did when it was first measured.
        """
        if now is None:
            return self
        whole = now.whole if is_fraction(self.asked) else self.whole
        cost = now.cost / whole * self.whole
        return replace(self, factor=cost / float(self.predicted(widths)))

    def halfway(self, other: "Limit") -> "Limit":
        """Come to meet another's factor halfway: measurements are not exact."""
        return replace(self, factor=(self.factor * other.factor) ** 0.5)

    def at(self, progress: float, begin: float) -> float:
        """What is allowed on the way from a cost at the beginning, in equal ratios."""
        return begin * min(1.0, self.most / begin) ** progress

    def used(self, widths: Widths) -> float:
        """What widths cost, as a part of what is allowed; at most one is within."""
        return float(self.cost(widths)) / self.most


def make_limits(
    budgets: Sequence[Budget], network: Network
) -> tuple[tuple[Limit, ...], ...]:
    """The limits of each budget; a cost that appears twice is worked out once."""
    asked = [budget.asked() for budget in budgets]
    costs = {n: COSTS[n](network) for n in COSTS if any(n in one for one in asked)}
    wholes = {name: float(cost(network.widths())) for name, cost in costs.items()}
    return tuple(
        tuple(
            Limit(n, amount, costs[n], wholes[n], absolute(amount, wholes[n], n))
            for n, amount in one.items()
        )
        for one in asked
    )


def check_reachable(limits: Sequence[Limit], floors: Widths) -> None:
    """Refuse limits that no widths meet.

    Args:
        limits: All that have to hold.
        floors: The least width of every group.

    Raises:
        ArgumentError: If one does not hold even then; the message has the range.
    """
    for limit in limits:
        least = float(limit.cost(floors))
        if least > limit.most:
            raise ArgumentError(
                f"{limit.name}={limit.asked!r} cannot be met: it allows "
                f"{limit.most:,.6g}, and with what is frozen and at least "
                f"{int(floors.min())} units per group at least {least:,.6g} of "
                f"{limit.whole:,.6g} remain.\n"
                f"Ask for {limit.name}={_round_up(least / limit.whole)} to 1, freeze "
                "less, or allow fewer units with `gate=lambda group: "
                "dp.Gate(group.size, min_open=1)`."
            )


def _round_up(fraction: float) -> float:
    """Four decimals, never less than it is."""
    scaled = torch.tensor(fraction * 1e4, dtype=torch.float64).ceil()
    return float(scaled) / 1e4


def marginal(limits: Sequence[Limit], prices: Sequence[float], at: Widths) -> Widths:
    """What one more unit of each group costs, at prices for the whole of each cost."""
    widths = at.clone().requires_grad_()
    with torch.enable_grad():
        costs = [
            price * limit.cost(widths) / limit.whole
            for limit, price in zip(limits, prices, strict=True)
        ]
        (found,) = torch.autograd.grad(torch.stack(costs).sum(), widths)
    return found

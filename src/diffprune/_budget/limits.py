"""The limits that a budget sets for one model: what it costs and what it may cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import torch
from torch import Tensor

from diffprune._budget.budget import Budget
from diffprune._choice.allocation import Costs, Widths
from diffprune._core.amounts import Amount, absolute, is_fraction
from diffprune._core.leaves import leaves_of
from diffprune._core.types import Float
from diffprune._costs.counts import file_size, macs, memory, parameters
from diffprune._costs.latency import latency
from diffprune._costs.network import Network
from diffprune._costs.polynomial import Polynomial
from diffprune._graph import ExampleInputs
from diffprune.errors import ArgumentError

PER_EXAMPLE: Final = ("macs", "memory")
"""Costs of a forward pass, in proportion to the batch."""

SMALL_SHARE: Final = 0.02


class Cost(Protocol):
    """What a model costs, as a function of its widths."""

    def __call__(self, widths: Widths, /) -> Float[Tensor, ""]:
        """The cost at these widths."""
        ...

    def slope(self, widths: Widths, /) -> Widths:
        """What one more unit of each group costs, at these widths."""
        ...


COSTS: Final[Mapping[str, Callable[[Network], Cost]]] = {
    "macs": macs,
    "parameters": parameters,
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
        factor: What was measured, divided by what was predicted.
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


def merit(used: float) -> tuple[bool, float]:
    """How good it is to use so much of a limit: the larger, the better.

    What is within the limit is better than what exceeds it, and what is nearer to it.
    """
    return used <= 1, -abs(1 - used)


def make_limits(
    budgets: Sequence[Budget], network: Network
) -> tuple[tuple[Limit, ...], ...]:
    """The limits of each budget; a cost that appears twice is worked out once.

    Raises:
        ArgumentError: If the model costs nothing that could be limited, or a cost per
            example is limited to a number, and the number of examples in the example
            inputs cannot be told.
    """
    asked = [budget.asked() for budget in budgets]
    names = [name for name in COSTS if any(name in one for one in asked)]
    examples = num_examples(network.inputs)
    for one in asked:
        _check_examples(one, examples)
    costs = {name: COSTS[name](network) for name in names}
    costs |= {
        name: _per_example(costs[name], examples or 1)
        for name in names
        if name in PER_EXAMPLE
    }
    wholes = {name: float(cost(network.widths())) for name, cost in costs.items()}
    if free := [name for name, whole in wholes.items() if not whole]:
        raise ArgumentError(
            f"the model has no {free[0]} that could be limited.\nLeave out "
            f"`{free[0]}=`, and limit something else, such as `parameters=0.3`."
        )
    return tuple(
        tuple(
            Limit(n, amount, costs[n], wholes[n], absolute(amount, wholes[n], n))
            for n, amount in one.items()
        )
        for one in asked
    )


def num_examples(inputs: ExampleInputs) -> int | None:
    """The batch size of example inputs; None if it cannot be told.

    It is the length of the first dimension, if all tensors that have one agree.

    Examples:
        >>> num_examples((torch.rand(8, 3), torch.rand(8))), num_examples(())
        (8, None)
    """
    lengths = {len(x) for x in leaves_of(Tensor, inputs) if x.ndim}
    return lengths.pop() if len(lengths) == 1 else None


def _check_examples(asked: Mapping[str, Amount], examples: int | None) -> None:
    absolute_ones = [n for n, a in asked.items() if not is_fraction(a)]
    if unclear := [name for name in absolute_ones if name in PER_EXAMPLE]:
        if examples:
            return
        raise ArgumentError(
            f"{unclear[0]}={asked[unclear[0]]!r} is per example, and how many examples "
            "the example inputs hold cannot be told: their first dimensions differ.\n"
            f"Ask for a part of the whole, such as `{unclear[0]}=0.3`."
        )


def _per_example(cost: Cost, examples: int) -> Cost:
    assert isinstance(cost, Polynomial)  # noqa: S101 - such costs are counted
    return replace(cost, divisor=examples)


_FEWER: Final = (
    "freeze less, or allow fewer units with `gate=lambda group: "
    "dp.Gate(group.size, min_open=1)`."
)


def check_reachable(
    limits: Sequence[Limit], floors: Widths, *, advice: str = _FEWER
) -> None:
    """Refuse limits that no widths meet.

    Args:
        limits: All that have to hold.
        floors: The least width of every group.
        advice: What can be done about it, besides asking for less.

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
                f"{_range(limit, least)}, {advice}{_hint(limit)}"
            )


def _range(limit: Limit, least: float) -> str:
    """What can be asked for; fast operations may take longer where they are narrow."""
    share = _round_up(least / limit.whole)
    if share >= 1:
        return f"What could leave makes it no less: leave out `{limit.name}=`"
    return f"Ask for {limit.name}={share} to 1"


def _hint(limit: Limit) -> str:
    """A small number for a latency may have been meant in seconds."""
    asked = limit.asked
    if limit.name != "latency" or isinstance(asked, str) or asked >= SMALL_SHARE:
        return ""
    return (
        f"\n{asked} is a share of the whole; for a time, type "
        f'`latency="{1000 * asked:g} ms"`.'
    )


def _round_up(fraction: float) -> float:
    """Four decimals, never less than it is."""
    scaled = torch.tensor(fraction * 1e4, dtype=torch.float64).ceil()
    return float(scaled) / 1e4


def marginal(limits: Sequence[Limit], prices: Sequence[float], at: Widths) -> Widths:
    """What one more unit of each group costs, at prices for the whole of each cost."""
    total = torch.zeros(len(at), dtype=torch.float64)
    for limit, price in zip(limits, prices, strict=True):
        if price:
            total += price * limit.factor / limit.whole * limit.predicted.slope(at)
    return total


def as_costs(limits: Sequence[Limit]) -> Costs:
    """Limits as an allocation sees them: parts used, and prices where one is exceeded.

    A cost within its limit has no price: nothing has to leave for it.
    """

    def used(widths: Widths) -> list[float]:
        return [limit.used(widths) for limit in limits]

    def price(widths: Widths, parts: Sequence[float]) -> Widths:
        prices = [
            limit.whole / limit.most * (part > 1)
            for limit, part in zip(limits, parts, strict=True)
        ]
        return marginal(limits, prices, widths)

    return Costs(used, price)

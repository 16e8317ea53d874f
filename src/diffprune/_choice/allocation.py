"""How many units each group keeps, so that costs stay within limits.

Units leave in the order of their worth per cost, whatever group they are in. No group
becomes much narrower than it would if all groups shrank alike: what a unit is worth is
measured at the width a group has, and says little about one that is nearly empty.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch
from torch import Tensor

from diffprune._choice.worth import Leaving
from diffprune._core.types import Float

Widths: TypeAlias = Float[Tensor, " groups"]

FLOOR: Final = 0.6
WASTE: Final = 0.02  # a choice that leaves this much of a limit unused is good
LEAST_UNITS: Final = 2
_LEAST_PART: Final = 0.05
_HALVINGS: Final = 40
_TRIES: Final = 10
_STEPS: Final = 256
_FREE: Final = 1e-30


@dataclass(frozen=True)
class Costs:
    """What widths cost.

    Attributes:
        used: From widths to the part of each limit that they use; one is all of it.
        marginal: From widths, and the part of each limit that they use, to what one
            unit of each group costs there, in limits that are exceeded.
    """

    used: Callable[[Widths], Sequence[float]]
    marginal: Callable[[Widths, Sequence[float]], Widths]

    def fit(self, widths: Widths) -> bool:
        """Whether all limits hold."""
        return max(self.used(widths)) <= 1


def allocate(
    leaving: Sequence[Leaving],
    costs: Costs,
    *,
    floor: float = FLOOR,
    least: int | Sequence[int] = LEAST_UNITS,
    round_to: int = 1,
    whole: Sequence[int] | None = None,
) -> list[int]:
    """Let units leave until all limits hold; return how many each group keeps.

    Args:
        leaving: The order in which the units of each group leave.
        costs: What widths cost.
        floor: No group becomes narrower than this part of its width in a network whose
            groups have all shrunk alike, as far as the limits can be met with that.
        least: Every group keeps at least so many units; one number, or one per group.
        round_to: Groups keep multiples of this, or all their units.
        whole: How many units the groups had at first; the present ones if omitted.
    """
    sizes = [len(group.order) for group in leaving]
    each = [least] * len(sizes) if isinstance(least, int) else least
    lowest = [
        _rounded(min(low, size), size, round_to)
        for low, size in zip(each, sizes, strict=True)
    ]
    alike = _part_floors(whole or sizes, costs, floor)
    floors = [
        max(low, _rounded(min(size, want), size, round_to))
        for low, want, size in zip(lowest, alike, sizes, strict=True)
    ]
    removals = _removals(leaving, sizes, floors, costs, round_to)
    widths = _widths(sizes, removals)
    if not costs.fit(as_widths(widths)):  # the limits need more than the floors allow
        removals += _removals(leaving, widths, lowest, costs, round_to)
        widths = _widths(sizes, removals)
    return _thrifty(*_given_back(widths, removals, costs), lowest, costs, round_to)


@dataclass(frozen=True)
class _Removal:
    """Some units of a group leave at once."""

    group: int
    count: int


def _removals(
    leaving: Sequence[Leaving],
    start: Sequence[int],
    floors: Sequence[int],
    costs: Costs,
    round_to: int,
) -> list[_Removal]:
    """What leaves, in order, until all limits hold or every group is at its floor."""
    widths, found = list(start), list[_Removal]()
    worths: list[list[float]] = [group.worth.tolist() for group in leaving]
    while max(used := costs.used(at := as_widths(widths))) > 1:
        prices = costs.marginal(at, used).clamp(min=_FREE).tolist()
        offers = list[tuple[float, int, int]]()
        for number, (worth, price) in enumerate(zip(worths, prices, strict=True)):
            size, width = len(worth), widths[number]
            count = _at_once(width, floors[number], round_to, size)
            if count:
                lost = sum(worth[size - width : size - width + count])
                offers.append((lost / (count * price), number, count))
        if not offers:
            break
        _, number, count = min(offers)
        widths[number] -= count
        found.append(_Removal(number, count))
    return found


def _at_once(width: int, floor: int, round_to: int, size: int) -> int:
    """How many units leave at once: to the next multiple, and more of a wide group."""
    count = (width % round_to) or round_to
    while count < size // _STEPS and width - count - round_to >= floor:
        count += round_to
    return count if width - count >= floor else 0


def _widths(sizes: Sequence[int], removals: Sequence[_Removal]) -> list[int]:
    widths = list(sizes)
    for removal in removals:
        widths[removal.group] -= removal.count
    return widths


def _given_back(
    widths: Sequence[int], removals: Sequence[_Removal], costs: Costs
) -> tuple[list[int], list[_Removal]]:
    """Let those that left last come back first, as far as there is room.

    Returns:
        The widths, and what is still gone.
    """
    kept, gone, full = list(widths), list[_Removal](), set[int]()
    for removal in reversed(removals):
        if removal.group not in full:
            kept[removal.group] += removal.count
            if costs.fit(as_widths(kept)):
                continue
            kept[removal.group] -= removal.count
            full.add(removal.group)
        gone.append(removal)
    return kept, gone[::-1]


def _thrifty(
    widths: list[int],
    removals: Sequence[_Removal],
    lowest: Sequence[int],
    costs: Costs,
    round_to: int,
) -> list[int]:
    """Where much is left over, let one more leave if others can then come back."""
    best, used = widths, _most_used(widths, costs)
    # The first units to leave a group may be few: those beyond a multiple.
    counts = {one.group: max(one.count, round_to) for one in removals}
    for group in [*counts][:_TRIES]:
        narrower = [*widths]
        narrower[group] -= counts[group]
        if 1 - used > WASTE and narrower[group] >= lowest[group]:
            others = [removal for removal in removals if removal.group != group]
            tried, _ = _given_back(narrower, others, costs)
            if used < _most_used(tried, costs) <= 1:
                best, used = tried, _most_used(tried, costs)
    return best


def _most_used(widths: Sequence[int], costs: Costs) -> float:
    return max(costs.used(as_widths(widths)))


def _part_floors(whole: Sequence[int], costs: Costs, floor: float) -> list[int]:
    """How narrow groups may become: a part of what they would be, all shrunk alike."""
    part = floor * uniform_part(whole, costs)
    return [
        max(math.floor(part * size), math.ceil(_LEAST_PART * size)) for size in whole
    ]


def uniform_part(sizes: Sequence[int], costs: Costs) -> float:
    """The largest part of its units that every group can keep alike."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        part = (low + high) / 2
        fits = costs.fit(torch.tensor([max(1.0, part * size) for size in sizes]))
        low, high = (part, high) if fits else (low, part)
    return low


def _rounded(width: int, size: int, round_to: int) -> int:
    return min(size, -(-width // round_to) * round_to)


def as_widths(counts: Iterable[int]) -> Widths:
    """How many units each group has, as costs take it."""
    return torch.tensor([*counts], dtype=torch.float64)

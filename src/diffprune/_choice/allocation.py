"""How many units each group keeps, so that costs stay within limits.

Units leave in the order of their worth per cost, whatever group they are in. No group
becomes much narrower than it would if all groups shrank alike: what a unit is worth is
measured at the width a group has, and says little about one that is nearly empty.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch
from torch import Tensor

from diffprune._choice.worth import Leaving
from diffprune._core.types import Float

Widths: TypeAlias = Float[Tensor, " groups"]

FLOOR: Final = 0.6
LEAST_UNITS: Final = 2
_LEAST_PART: Final = 0.05
_HALVINGS: Final = 40
_STEPS: Final = 256
_FREE: Final = 1e-30


@dataclass(frozen=True)
class Costs:
    """What widths cost.

    Attributes:
        used: From widths to the part of each limit that they use; one is all of it.
        marginal: What one unit of each group costs, at these widths, in limits that are
            exceeded.
    """

    used: Callable[[Widths], Sequence[float]]
    marginal: Callable[[Widths], Widths]

    def fit(self, widths: Widths) -> bool:
        """Whether all limits hold."""
        return max(self.used(widths)) <= 1


def allocate(
    leaving: Sequence[Leaving],
    costs: Costs,
    *,
    floor: float = FLOOR,
    least: int = LEAST_UNITS,
    round_to: int = 1,
) -> list[int]:
    """Let units leave until all limits hold; return how many each group keeps.

    Args:
        leaving: The order in which the units of each group leave.
        costs: What widths cost.
        floor: No group becomes narrower than this part of its width in a network whose
            groups have all shrunk alike, as far as the limits can be met with that.
        least: Every group keeps at least so many units.
        round_to: Groups keep multiples of this, or all their units.
    """
    sizes = [len(group.order) for group in leaving]
    lowest = [_rounded(min(least, size), size, round_to) for size in sizes]
    floors = _floors(sizes, lowest, costs, floor, round_to)
    removals = _removals(leaving, sizes, floors, costs, round_to)
    widths = _widths(sizes, removals)
    if not costs.fit(_tensor(widths)):  # the limits need more than the floors allow
        removals += _removals(leaving, widths, lowest, costs, round_to)
        widths = _widths(sizes, removals)
    return _given_back(widths, removals, costs)


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
    while not costs.fit(_tensor(widths)):
        prices = costs.marginal(_tensor(widths)).clamp(min=_FREE).tolist()
        offers = list[tuple[float, int, int]]()
        for number, (group, price) in enumerate(zip(leaving, prices, strict=True)):
            width = widths[number]
            count = _at_once(width, floors[number], round_to, len(group.order))
            if count:
                worth = _worth(group, width, count) / (count * price)
                offers.append((worth, number, count))
        if not offers:
            break
        _, number, count = min(offers)
        widths[number] -= count
        found.append(_Removal(number, count))
    return found


def _worth(group: Leaving, width: int, count: int) -> float:
    """What the next units to leave are worth."""
    gone = len(group.order) - width
    return float(group.worth[gone : gone + count].sum())


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
) -> list[int]:
    """Let those that left last come back first, as far as there is room."""
    kept, full = list(widths), set[int]()
    for removal in reversed(removals):
        if removal.group in full:
            continue
        kept[removal.group] += removal.count
        if not costs.fit(_tensor(kept)):
            kept[removal.group] -= removal.count
            full.add(removal.group)
    return kept


def _floors(
    sizes: Sequence[int],
    lowest: Sequence[int],
    costs: Costs,
    floor: float,
    round_to: int,
) -> list[int]:
    part = floor * uniform_part(sizes, costs)
    wanted = [
        max(math.floor(part * size), math.ceil(_LEAST_PART * size)) for size in sizes
    ]
    return [
        max(low, _rounded(want, size, round_to))
        for low, want, size in zip(lowest, wanted, sizes, strict=True)
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


def _tensor(widths: Sequence[int]) -> Widths:
    return torch.tensor(widths, dtype=torch.float64)

"""Which units to keep so that costs stay within limits. Knows numbers, not gates.

Units leave in the order of their scores, whatever group they are in, until every limit
holds. The last one may have been expensive: then those that left are asked back, the
best first, as far as there is room for them.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import torch
from torch import Tensor

from diffprune._core.types import Bool, Float, Int

Used: TypeAlias = Callable[[Float[Tensor, " groups"]], float]

_TRIES: Final = 10


def choose(
    scores: Sequence[Float[Tensor, " units"]],
    floors: Sequence[int],
    used: Used,
    waste: float = 1.0,
) -> list[Bool[Tensor, " units"]]:
    """Units to keep, per group: many, good ones, and such that they fit.

    Args:
        scores: How much each unit is worth, comparable between groups.
        floors: How many units each group keeps in any case: its best.
        used: What part of the limits groups of such widths use: they fit if it is at
            most one, as it must be at the floors. More units never use less.
        waste: If a larger part remains unused, one more unit of some group may leave to
            make room for those of others.

    Examples:
        >>> scores = [torch.tensor([0.1, 0.9, 0.5]), torch.tensor([0.3, 0.2, 0.8])]
        >>> choose(scores, [1, 1], lambda widths: float(widths.prod()) / 4)
        [tensor([False,  True,  True]), tensor([ True, False,  True])]
    """
    sizes = [len(score) for score in scores]
    owner = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    leaving = _closable(scores, floors)
    order = leaving[torch.cat([*scores])[leaving].argsort(stable=True)]
    widths = torch.tensor(sizes, dtype=torch.float64)

    def fit(count: int) -> bool:
        gone = torch.bincount(owner[order[:count]], minlength=len(sizes))
        return used(widths - gone) <= 1

    count = bisect_left(range(len(order)), x=True, key=fit)
    best = _refill(order[:count], owner, widths, used)
    for extra in _first_of_each(owner, order[count:])[:_TRIES]:
        if 1 - best[1] > waste:
            other = _refill(order[:count], owner, widths, used, extra)
            best = max(best, other, key=lambda tried: tried[1])
    kept = torch.ones(len(owner), dtype=torch.bool)
    kept[best[0]] = False
    return list(kept.split(sizes))


def _closable(
    scores: Sequence[Float[Tensor, " units"]], floors: Sequence[int]
) -> Int[Tensor, " n"]:
    """All units but the best of every group, numbered through."""
    found, start = list[Tensor](), 0
    for score, floor in zip(scores, floors, strict=True):
        found.append(start + score.argsort(descending=True, stable=True)[floor:])
        start += len(score)
    return torch.cat(found).sort().values


def _first_of_each(owner: Int[Tensor, " all"], units: Int[Tensor, " n"]) -> list[int]:
    """Of these units the first of every group."""
    first = {int(owner[unit]): int(unit) for unit in units.flip(0)}
    return [unit for unit in units.tolist() if unit in first.values()]


def _refill(
    left: Int[Tensor, " n"],
    owner: Int[Tensor, " all"],
    whole: Float[Tensor, " groups"],
    used: Used,
    extra: int | None = None,
) -> tuple[list[int], float]:
    """Who has left when the last to leave come back first, and what is used then.

    The extra unit stays away, and so does its group.
    """
    gone = left.tolist() + ([] if extra is None else [extra])
    widths = whole - torch.bincount(owner[gone], minlength=len(whole))
    full, part = {int(owner[extra])} if extra is not None else set[int](), used(widths)
    for unit in reversed(left.tolist()):
        group = int(owner[unit])
        if group in full:
            continue
        widths[group] += 1
        tried = used(widths)
        if tried <= 1:
            gone.remove(unit)
            part = tried
        else:
            widths[group] -= 1
            full.add(group)
    return gone, part

"""Which units to keep so that costs stay within limits. Knows numbers, not gates.

Units leave in the order of their scores, whatever group they are in, until every limit
holds. The last one may have been expensive: then those that left are asked back, the
best first, as far as there is room for them.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from diffprune._typing import Bool, Float, Int

Fits: TypeAlias = Callable[[Float[Tensor, " groups"]], bool]


def choose(
    scores: Sequence[Float[Tensor, " units"]], floors: Sequence[int], fits: Fits
) -> list[Bool[Tensor, " units"]]:
    """Units to keep, per group: many, good ones, and such that they fit.

    Args:
        scores: How much each unit is worth, comparable between groups.
        floors: How many units each group keeps in any case: its best.
        fits: Whether the limits hold when groups have these widths; if so, they hold
            for smaller ones too. Must be true at the floors.

    Example:
        >>> scores = [torch.tensor([0.1, 0.9, 0.5]), torch.tensor([0.3, 0.2, 0.8])]
        >>> choose(scores, [1, 1], lambda widths: widths.prod() <= 4)
        [tensor([False,  True,  True]), tensor([ True, False,  True])]
    """
    sizes = [len(score) for score in scores]
    owner = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    leaving = _closable(scores, floors)
    order = leaving[torch.cat([*scores])[leaving].argsort(stable=True)]
    owners = owner[order]
    whole = torch.tensor(sizes, dtype=torch.float64)

    def left_fit(count: int) -> bool:
        gone = torch.bincount(owners[:count], minlength=len(sizes))
        return fits(whole - gone)

    count = bisect_left(range(len(order)), x=True, key=left_fit)
    back = _asked_back(owners[:count], whole, fits)
    kept = torch.ones(len(owner), dtype=torch.bool)
    kept[order[:count][~back]] = False
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


def _asked_back(
    owners: Int[Tensor, " n"], whole: Float[Tensor, " groups"], fits: Fits
) -> Bool[Tensor, " n"]:
    """Which of those that left may come back, the last first."""
    widths = whole - torch.bincount(owners, minlength=len(whole))
    back, full = torch.zeros(len(owners), dtype=torch.bool), set[int]()
    for place in reversed(range(len(owners))):
        group = int(owners[place])
        if group in full:
            continue
        widths[group] += 1
        if fits(widths):
            back[place] = True
        else:
            widths[group] -= 1
            full.add(group)
            if len(full) == len(whole):
                break
    return back

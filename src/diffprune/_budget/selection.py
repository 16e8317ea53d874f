"""Which units to keep so that costs stay within limits.

Units leave in the order of their scores, whatever group they are in, until every limit
holds. The last one may have been expensive: then those that left are asked back, the
best first, as far as there is room for them.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, final

import torch
from torch import Tensor

from diffprune._budget.gate_control import open_units, scores, set_open_
from diffprune._budget.limits import Limit, Widths
from diffprune._core.types import Bool, Float, Int
from diffprune._surgery.keep_masks import widen
from diffprune.gates import Gate

Masks: TypeAlias = dict[str, Bool[Tensor, " units"]]
Worth: TypeAlias = Mapping[str, Float[Tensor, " units"]]

WASTE: Final = 0.02  # a choice that leaves this much of a limit unused is good
_ROUNDS: Final = 5
_TRIES: Final = 10
Used: TypeAlias = Callable[[Float[Tensor, " groups"]], float]


@final
class UnitSelection:
    """The units of some gates.

    Args:
        gates: The gates, in the order of widths.
        sizes: How many units they had at first.
        round_to: Widths are multiples of this.
        read: From the units that each gate keeps to those that the data then has.
    """

    def __init__(
        self,
        gates: Mapping[str, Gate],
        sizes: Widths,
        round_to: int,
        read: Callable[[Masks], Masks],
    ) -> None:
        self._gates, self._sizes = gates, sizes
        self._round_to, self._read = round_to, read

    def open(self) -> Masks:
        """Open units of each gate."""
        return {name: open_units(gate) for name, gate in self._gates.items()}

    def widths(self) -> Widths:
        """Open units per gate."""
        return _count(self.open())

    def left(self) -> Widths:
        """Which part of its first units each gate still has open."""
        return self.widths() / self._sizes

    def rounded(self, keep: Masks | None = None) -> Widths:
        """Widths when these units are kept, as multiples; by default the open ones."""
        return self._rounded(_count(self.open() if keep is None else keep))

    def least(self) -> Widths:
        """The smallest widths that there can be."""
        return self._rounded(torch.tensor(self._floors(), dtype=torch.float64))

    def worth(self) -> dict[str, Float[Tensor, " units"]]:
        """How far open units are from closing, further where few are left."""
        scarcity = (1 / self.left().clamp(min=1e-9)).tolist()
        found = {name: scores(gate) for name, gate in self._gates.items()}
        return {
            name: score.where(score <= 0, score * factor)
            for (name, score), factor in zip(found.items(), scarcity, strict=True)
        }

    def set_(self, keep: Masks) -> None:
        """Open these units and close the others."""
        for name, gate in self._gates.items():
            set_open_(gate, keep[name])

    def target_set(self, worth: Worth, limits: Sequence[Limit], former: Masks) -> Masks:
        """The best units that fit the limits.

        Args:
            worth: What each unit is worth.
            limits: What has to hold.
            former: An earlier target set; it stays if the new one uses less.
        """
        found = min(self._fitting(worth, limits), key=lambda m: self._waste(m, limits))
        waste = self._waste(found, limits)
        if waste > WASTE and former and 0 <= self._waste(former, limits) < waste:
            return former
        return found

    def choose(
        self,
        worth: Worth,
        limits: Sequence[Limit],
        most: Sequence[float],
        waste: float = 1.0,
    ) -> Masks:
        """Many and good units that cost no more than this, limit by limit."""

        def used(widths: Widths) -> float:
            at, pairs = self._rounded(widths), zip(limits, most, strict=True)
            return max(float(limit.cost(at)) / allowed for limit, allowed in pairs)

        kept = choose([*worth.values()], self._floors(), used, waste)
        widths = self._rounded(torch.tensor([float(units.sum()) for units in kept]))
        return {
            name: widen(units, int(width), score)
            for (name, score), units, width in zip(
                worth.items(), kept, widths, strict=True
            )
        }

    def _fitting(self, worth: Worth, limits: Sequence[Limit]) -> Iterator[Masks]:
        """Units that fit, until hardly anything of the limits is unused."""
        most = [limit.most for limit in limits]
        for _ in range(_ROUNDS):
            keep = self.choose(worth, limits, most, WASTE)
            read = self._read(keep)
            floors = zip(keep.items(), self._floors(), strict=True)
            fits = {
                name: widen(units & read[name], floor, worth[name])
                for (name, units), floor in floors
            }
            yield fits
            waste = self._waste(fits, limits)
            if waste <= WASTE or waste == self._waste(keep, limits):
                return
            # What is kept and nobody would read makes room for others.
            idle = {name: units & ~read[name] for name, units in keep.items()}
            worth = {n: w.masked_fill(idle[n], -math.inf) for n, w in worth.items()}

    def _waste(self, kept: Masks, limits: Sequence[Limit]) -> float:
        """How much is left over, at the tightest limit."""
        widths = self.rounded(kept)
        return 1 - max(limit.used(widths) for limit in limits)

    def _floors(self) -> list[int]:
        return [min(gate.min_open, gate.size) for gate in self._gates.values()]

    def _rounded(self, widths: Widths) -> Widths:
        """Multiples that are at least as wide, as far as there are units."""
        sizes = torch.tensor([float(gate.size) for gate in self._gates.values()])
        rounded = (widths / self._round_to).ceil() * self._round_to
        return rounded.double().minimum(sizes.double())


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


def _count(kept: Masks) -> Widths:
    counts = [int(units.sum()) for units in kept.values()]
    return torch.tensor(counts, dtype=torch.float64)

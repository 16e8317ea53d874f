"""The units of all gates together: how many, what they are worth, which ones fit.

Knows limits and gates, and nothing of when or why they close.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, final

import torch
from torch import Tensor

from diffprune._budget.choose import choose
from diffprune._budget.gate_control import open_units, scores, set_open_
from diffprune._budget.limits import Limit, Widths
from diffprune._core.types import Bool, Float
from diffprune._surgery.keep_masks import widen
from diffprune.gates import Gate

Masks: TypeAlias = dict[str, Bool[Tensor, " units"]]
Worth: TypeAlias = Mapping[str, Float[Tensor, " units"]]

WASTE: Final = 0.02  # a choice that leaves this much of a limit unused is good
_ROUNDS: Final = 5


@final
class Crowd:
    """The units of some gates.

    Args:
        gates: The gates, in the order of widths.
        sizes: How many units they had at first.
        round_to: Widths are multiples of this.
        unread: From units that are closed to those that nobody reads then, of any gate.
    """

    def __init__(
        self,
        gates: Mapping[str, Gate],
        sizes: Widths,
        round_to: int,
        unread: Callable[[Masks], Masks],
    ) -> None:
        self._gates, self._sizes = gates, sizes
        self._round_to, self._unread = round_to, unread

    def open(self) -> Masks:
        """Open units of each gate."""
        return {name: open_units(gate) for name, gate in self._gates.items()}

    def widths(self) -> Widths:
        """Open units per gate."""
        return _count(self.open())

    def left(self) -> Widths:
        """Which part of its first units each gate still has open."""
        return self.widths() / self._sizes

    def rounded(self, kept: Masks | None = None) -> Widths:
        """What the widths of these units come to, in multiples; of those now open."""
        return self._rounded(_count(self.open() if kept is None else kept))

    def least(self) -> Widths:
        """The least that they can come to."""
        return self._rounded(torch.tensor(self._floors(), dtype=torch.float64))

    def worth(self) -> dict[str, Float[Tensor, " units"]]:
        """How far open units are from closing, further where few are left."""
        scarcity = (1 / self.left().clamp(min=1e-9)).tolist()
        found = {name: scores(gate) for name, gate in self._gates.items()}
        return {
            name: score.where(score <= 0, score * factor)
            for (name, score), factor in zip(found.items(), scarcity, strict=True)
        }

    def set_(self, kept: Masks) -> Masks:
        """Open these units and close the others, which are returned."""
        for name, gate in self._gates.items():
            set_open_(gate, kept[name])
        return {name: ~units for name, units in kept.items()}

    def landing(self, worth: Worth, limits: Sequence[Limit], former: Masks) -> Masks:
        """The best units that fit the limits; the former ones if too little does."""
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
            kept = self.choose(worth, limits, most, WASTE)
            unread = self._unread({name: ~units for name, units in kept.items()})
            floors = zip(kept.items(), self._floors(), strict=True)
            read = {
                name: widen(units & ~unread[name], floor, worth[name])
                for (name, units), floor in floors
            }
            yield read
            waste = self._waste(read, limits)
            if waste <= WASTE or waste == self._waste(kept, limits):
                return
            # What is kept and nobody would read makes room for others.
            idle = {name: units & unread[name] for name, units in kept.items()}
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


def _count(kept: Masks) -> Widths:
    counts = [int(units.sum()) for units in kept.values()]
    return torch.tensor(counts, dtype=torch.float64)

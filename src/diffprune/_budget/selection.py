"""Which units to keep so that costs stay within limits.

Units leave by what they are worth per cost, whatever group they are in, until every
limit holds; what nobody would read then makes room for others.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, final

import torch
from torch import Tensor

from diffprune._budget.gate_control import is_present, open_units, set_open_
from diffprune._budget.limits import Limit, as_costs
from diffprune._choice.allocation import FLOOR, WASTE, Widths, allocate, as_widths
from diffprune._choice.worth import Leaving
from diffprune._core.types import Bool
from diffprune._surgery.keep_masks import widen
from diffprune.gates import Gate

Masks: TypeAlias = dict[str, Bool[Tensor, " units"]]
Orders: TypeAlias = Mapping[str, Leaving]
"""By gate, in which order its units should leave."""

_ROUNDS: Final = 5


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
        self._gates, self._sizes = gates, [int(size) for size in sizes]
        self._round_to, self._read = round_to, read

    def open(self) -> Masks:
        """Open units of each gate."""
        return {name: open_units(gate) for name, gate in self._gates.items()}

    def widths(self) -> Widths:
        """Open units per gate."""
        return _count(self.open())

    def rounded(self, keep: Masks | None = None) -> Widths:
        """Widths when these units are kept, as multiples; by default the open ones."""
        return self._rounded(_count(self.open() if keep is None else keep))

    def least(self) -> Widths:
        """The smallest widths that there can be."""
        return self._rounded(as_widths(self._floors()))

    def set_(self, keep: Masks) -> None:
        """Open these units and close the others."""
        for name, gate in self._gates.items():
            set_open_(gate, keep[name])

    def fitting(
        self, orders: Orders, limits: Sequence[Limit], known: Masks | None = None
    ) -> Masks:
        """The best units that fit the limits.

        Args:
            orders: In which order units leave.
            limits: What has to hold.
            known: Units that fit; as many are kept if nothing else uses more.
        """
        found = [*self._fitting(orders, limits)]
        best = min(found, key=lambda masks: self._waste(masks, limits))
        if known is not None and self._waste(best, limits) > WASTE:
            alike = {n: orders[n].keep(int(units.sum())) for n, units in known.items()}
            if 0 <= self._waste(alike, limits) < self._waste(best, limits):
                return alike
        return best

    def between(self, orders: Orders, limits: Sequence[Limit], least: Masks) -> Masks:
        """Units that fit limits on the way, these among them.

        Others leave before these, though they may be worth more by now: features, for
        instance, of filters that are to leave later.
        """
        widths = [int(units.sum()) for units in least.values()]
        orders = {name: order.behind(least[name]) for name, order in orders.items()}
        return self._chosen(orders, limits, widths)

    def _fitting(self, orders: Orders, limits: Sequence[Limit]) -> Iterator[Masks]:
        """Units that fit, until hardly anything of the limits is unused."""
        orders = {n: _first(o, ~is_present(self._gates[n])) for n, o in orders.items()}
        for _ in range(_ROUNDS):
            keep = self._chosen(orders, limits, self._floors())
            read = self._read(keep)
            floors = zip(orders.items(), self._floors(), strict=True)
            fits = {
                name: self._at_least(floor, name, order, keep, read[name])
                for (name, order), floor in floors
            }
            yield fits
            waste = self._waste(fits, limits)
            if waste <= WASTE or waste == self._waste(keep, limits):
                return
            # What is kept and nobody would read makes room for others.
            idle = {name: units & ~read[name] for name, units in keep.items()}
            orders = {n: _first(order, idle[n]) for n, order in orders.items()}

    def _at_least(
        self,
        floor: int,
        name: str,
        order: Leaving,
        keep: Masks,
        read: Bool[Tensor, " units"],
    ) -> Bool[Tensor, " units"]:
        """What is kept of a gate and read, and more up to its floor: what can be read.

        Args:
            floor: How many units stay at least.
            name: The gate.
            order: In which order its units leave.
            keep: What all gates keep.
            read: The units of this one that the data then has.
        """
        units = keep[name] & read
        if int(units.sum()) >= floor:
            return units
        readable = self._read({**keep, name: torch.ones_like(units)})[name]
        return widen(units, floor, order.ahead(~readable).ranks())

    def _chosen(
        self, orders: Orders, limits: Sequence[Limit], least: Sequence[int]
    ) -> Masks:
        # Where nothing is known of what units are worth, groups shrink alike.
        is_known = any(bool(order.worth.any()) for order in orders.values())
        widths = allocate(
            [*orders.values()],
            as_costs(limits),
            floor=FLOOR if is_known else 1.0,
            least=least,
            round_to=self._round_to,
            whole=self._sizes,
        )
        pairs = zip(orders.items(), widths, strict=True)
        return {name: order.keep(width) for (name, order), width in pairs}

    def _waste(self, kept: Masks, limits: Sequence[Limit]) -> float:
        """How much is left over, at the tightest limit."""
        widths = self.rounded(kept)
        return 1 - max(limit.used(widths) for limit in limits)

    def _floors(self) -> list[int]:
        return [min(gate.min_open, gate.size) for gate in self._gates.values()]

    def _rounded(self, widths: Widths) -> Widths:
        """Multiples that are at least as wide, as far as there are units."""
        sizes = as_widths(gate.size for gate in self._gates.values())
        rounded = (widths / self._round_to).ceil() * self._round_to
        return rounded.minimum(sizes)


def _first(order: Leaving, units: Bool[Tensor, " units"]) -> Leaving:
    """The order in which these units leave before all others, as they cost nothing."""
    return order.ahead(units) if bool(units.any()) else order


def _count(kept: Masks) -> Widths:
    return as_widths(int(units.sum()) for units in kept.values())

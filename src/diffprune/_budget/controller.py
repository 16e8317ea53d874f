"""Close gates until budgets are met, then hold what is left open.

For each budget in turn: *warm up* with every gate held open; *close*, in a few rounds,
what is worth least for what it costs, following a plan from the present cost to the one
asked for; *recover* with what is left. A network that was trained before is closed at
once, and all the steps are for the small one.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, final

import torch
from torch import Tensor

from diffprune._budget.budget import Budget
from diffprune._budget.gate_control import hold_open_, let_close_
from diffprune._budget.limits import (
    Limit,
    Measured,
    check_reachable,
    make_limits,
    merit,
)
from diffprune._budget.selection import Masks, Orders, UnitSelection
from diffprune._core.arguments import check, count
from diffprune._core.types import Float
from diffprune._costs.network import Network
from diffprune.errors import ArgumentError
from diffprune.gates import Gate

Phase: TypeAlias = Literal["warm-up", "closing", "recovery", "met"]

WARM_UP: Final = 0.1
CLOSED_BY: Final = 0.3
WINDOW: Final = 16
"""For so many steps before units leave, the pruner measures what they are worth."""

_ROUNDS: Final = 8
_TRIALS: Final = 6
_CORRECTIONS: Final = 2


@dataclass(frozen=True)
class Tick:
    """What is due after a step.

    Attributes:
        keep: By gate, the units to keep; None if nothing is to be removed.
        met: A budget that was met and from which the model has recovered.
    """

    keep: Masks | None = None
    met: Budget | None = None


@dataclass(frozen=True)
class _Trial:
    """Units that were thought to fit, limits that know better, and what they use."""

    keep: Masks
    limits: tuple[Limit, ...]
    used: float


def rounds(budget: Budget) -> list[int]:
    """After which steps units leave, at the latest; by the last one the budget is met.

    Examples:
        >>> rounds(Budget(macs=0.5, steps=1000))
        [100, 129, 158, 186, 215, 243, 272, 300]
        >>> rounds(Budget(macs=0.5, steps=1000, pretrained=True))
        [16]
    """
    steps = budget.needed_steps()
    if budget.pretrained:
        return [max(1, min(WINDOW, math.ceil(WARM_UP * steps)))]
    first, last = WARM_UP * steps, CLOSED_BY * steps
    each = (last - first) / (_ROUNDS - 1)
    return [max(1, math.ceil(first + each * number)) for number in range(_ROUNDS)]


@final
class Controller:
    """Steers the gates of a model to one budget after the other.

    Args:
        budgets: What to reach, in turn.
        network: The whole model.
        gates: The gates of its groups, in their order.
        orders: Says, whenever units are to leave, in which order those of each gate do.
        round_to: Widths are multiples of this.
        read: From the units that each gate keeps to those that the data then has.
        measure: From the units that each gate keeps to measured costs, by name, where a
            cost has to be timed.

    Attributes:
        stage: The number of the budget that is being met.
        phase: What is being done for it.

    Raises:
        ArgumentError: If a budget cannot be met, or does not say for how many steps.
    """

    def __init__(
        self,
        budgets: Sequence[Budget],
        network: Network,
        gates: Mapping[str, Gate],
        orders: Callable[[], Orders],
        round_to: int = 1,
        read: Callable[[Masks], Masks] = dict,
        measure: Callable[[Masks], Mapping[str, Measured]] | None = None,
    ) -> None:
        self.budgets, self._gates, self._measure = tuple(budgets), gates, measure
        self._rounds = [rounds(budget) for budget in budgets]
        self._units = UnitSelection(gates, network.widths(), round_to, read)
        self._orders = orders
        self._limits = [*make_limits(budgets, network)]
        for limits in self._limits:
            check_reachable(limits, self._units.least())
        self.stage, self.phase, self._start, self._done = 0, "warm-up", 0, 0
        self._begin: list[float] = self._costs()
        self._target: Masks | None = None
        self._hold_()

    @property
    def limits(self) -> Sequence[Limit]:
        """The limits of the budget that is being met."""
        return self._limits[self.stage]

    @property
    def is_closing(self) -> bool:
        """Whether units are still to leave for the budget."""
        return self.phase in {"warm-up", "closing"}

    @property
    def is_settled(self) -> bool:
        """Whether no unit will ever leave again."""
        return not self.is_closing and self.stage + 1 == len(self.budgets)

    @property
    def is_pretrained(self) -> bool:
        """Whether the budget is for a model that was trained before."""
        return self.budgets[self.stage].pretrained

    @property
    def may_be_early(self) -> bool:
        """Whether units leave as soon as it is known what they are worth."""
        return self.is_closing and self.is_pretrained

    def is_near(self, step: int) -> bool:
        """Whether units are about to leave, so that what they are worth matters."""
        if not self.is_closing or self._done >= len(self._rounds[self.stage]):
            return False
        return self._rounds[self.stage][self._done] - (step - self._start) <= WINDOW

    def is_due(self, step: int, *, is_measured: bool = False) -> bool:
        """Whether there is something to do after so many steps.

        Args:
            step: How many.
            is_measured: Whether it is known what units are worth; a network that was
                trained before waits for nothing else.
        """
        if self.phase == "recovery":
            return step - self._start >= self.budgets[self.stage].needed_steps()
        if not self.is_closing:
            return False
        is_early = is_measured and self.may_be_early
        return is_early or self._rounds_by(step) > self._done or self._is_late

    @torch.no_grad()
    def tick(self, step: int) -> Tick:
        """Follow the plan; call `after_removal_` when what is to go has gone."""
        if self.phase == "recovery":
            return self._next_(step)
        self.phase = "closing"
        self._done = max(self._done + 1, self._rounds_by(step))
        progress = self._done / len(self._rounds[self.stage])
        widths = self._units.rounded()
        if progress >= 1 or all(limit.used(widths) <= 1 for limit in self.limits):
            return Tick(self._close_rest_())
        return Tick(self._close_(self._on_the_way(progress)))

    @torch.no_grad()
    def follow_(self, state: Mapping[str, Any], keep: Masks | None) -> None:
        """Do what another controller of the same model has done.

        Args:
            state: Where that one is now.
            keep: The units that it has kept open; None if it holds all.
        """
        self.load_state_dict(state)
        if keep is None:
            self._hold_()
        else:
            self._close_(keep)

    @torch.no_grad()
    def finish(self) -> Tick:
        """Take the next step to the end of a run that stops; empty if it is there.

        Call `after_removal_` when what is to go has gone.
        """
        if self.phase == "recovery":
            return self._next_(self._start)
        return Tick(self._close_rest_() if self.is_closing else None)

    @torch.no_grad()
    def after_removal_(self) -> None:
        """After a removal: hold what is left, and see whether it is little enough."""
        self._hold_()
        if self._target is None:
            self._learn_(self._units.open())
        if self.phase == "recovery" and self._is_too_much():
            self.phase = "closing"  # a little more has to go, right after the next step

    def widths(self) -> Float[Tensor, " groups"]:
        """Open units per gate."""
        return self._units.widths()

    def state_dict(self) -> dict[str, Any]:
        """Where it is; as plain data."""
        return {
            "budgets": [budget.to_dict() for budget in self.budgets],
            "stage": self.stage,
            "phase": self.phase,
            "start": self._start,
            "done": self._done,
            "begin": self._begin,
            "factors": [limit.factor for limit in self.limits],
            "target": self._target and {n: t.tolist() for n, t in self._target.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from there; thresholds are the gates' own to load.

        Raises:
            ArgumentError: If the state is damaged, or that of other budgets.
        """
        self.check_state(state)
        try:
            self._load_(state)
        except (
            AttributeError, LookupError, RuntimeError, TypeError, ValueError
        ) as error:  # fmt: skip
            raise ArgumentError(
                f"this state of a budget is damaged: {error}\n"
                "Load what `state_dict` of a pruner with the same arguments returned."
            ) from error

    def _load_(self, state: Mapping[str, Any]) -> None:
        stage = count("stage", state["stage"], least=0)
        phase = state["phase"]
        check("phase", Phase, phase)
        start = count("start", state["start"], least=0)
        done = count("done", state["done"], least=0)
        begin, target = [float(cost) for cost in state["begin"]], state["target"]
        units = target and {n: torch.tensor(u).bool() for n, u in target.items()}
        limits = tuple(
            replace(limit, factor=float(factor))
            for limit, factor in zip(self._limits[stage], state["factors"], strict=True)
        )
        self.stage, self.phase, self._start, self._done = stage, phase, start, done
        self._begin, self._target, self._limits[stage] = begin, units, limits

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Refuse a state that is on its way to something else.

        Raises:
            ArgumentError: If the state is that of other budgets.
        """
        check("the state of a budget", Mapping[str, Any], state)
        found = state.get("budgets")
        asked = [budget.to_dict() for budget in self.budgets]
        if found != asked:
            raise ArgumentError(
                f"this state is on its way to {found}, and this pruner was asked for "
                f"{asked}.\nAsk for what the run was made with, its `steps` included: "
                "they say when units leave, and training may take longer."
            )

    def used(self) -> dict[str, float]:
        """What part of each limit is used by now; all is well up to one."""
        widths = self._units.rounded()
        return {limit.name: limit.used(widths) for limit in self.limits}

    def report(self) -> list[str]:
        """What was asked for and what is used, a line for each limit."""
        widths = self._units.rounded()
        return [
            f"{limit.name}={limit.asked!r}: {float(limit.cost(widths)):,.6g} of "
            f"{limit.most:,.6g} allowed ({self.phase})"
            for limit in self.limits
        ]

    def _is_too_much(self) -> bool:
        """Whether a limit is exceeded, and there is something left to close."""
        widths = self._units.rounded()
        is_above = any(limit.used(widths) > 1 for limit in self.limits)
        return is_above and bool((widths > self._units.least()).any())

    def _learn_(self, keep: Masks) -> tuple[Limit, ...]:
        """Correct predictions; limits as they are if what was measured is believed."""
        if self._measure is None:
            return tuple(self.limits)
        widths = self._units.rounded(keep)
        costs = self._measure(keep)
        exact = [limit.measured(widths, costs.get(limit.name)) for limit in self.limits]
        pairs = zip(self.limits, exact, strict=True)
        self._limits[self.stage] = tuple(old.halfway(new) for old, new in pairs)
        return tuple(exact)

    @property
    def _is_late(self) -> bool:
        """Whether all rounds have passed, and it was not enough."""
        return self._done >= len(self._rounds[self.stage])

    def _rounds_by(self, step: int) -> int:
        taken = step - self._start
        return sum(due <= taken for due in self._rounds[self.stage])

    def _costs(self) -> list[float]:
        widths = self._units.rounded()
        return [float(limit.cost(widths)) for limit in self.limits]

    def _next_(self, step: int) -> Tick:
        met, is_last = self.budgets[self.stage], self.stage + 1 == len(self.budgets)
        if is_last:
            self.phase = "met"
        else:
            self.stage, self.phase, self._start, self._done = (
                self.stage + 1,
                "warm-up",
                step,
                0,
            )
            self._begin = self._costs()
        return Tick(met=met)

    def _hold_(self) -> None:
        for gate in self._gates.values():
            hold_open_(gate)

    def _close_(self, keep: Masks) -> Masks:
        """Close all other units; what is kept."""
        for gate in self._gates.values():
            let_close_(gate)
        self._units.set_(keep)
        return keep

    def _on_the_way(self, progress: float) -> Masks:
        """What the plan allows by now; enough of each gate to use all of the budget."""
        orders = self._orders()
        target = self._units.fitting(orders, self.limits, self._target)
        for _ in range(0 if self._measure is None else _CORRECTIONS):
            self._learn_(target)
            target = self._units.fitting(orders, self.limits, target)
        pairs = zip(self.limits, self._begin, strict=True)
        planned = [replace(one, most=one.at(progress, begin)) for one, begin in pairs]
        keep = self._units.between(orders, planned, target)
        self._target = {name: target[name][keep[name]] for name in keep}
        return keep

    def _close_rest_(self) -> Masks:
        """Keep what fits the budget; where a cost is timed, try several times."""
        orders = self._orders()
        trials = 1 if self._measure is None else _TRIALS
        tried = [self._try_(orders) for _ in range(trials)]
        best = max(tried, key=lambda trial: merit(trial.used))
        self._limits[self.stage] = best.limits
        self.phase, self._done = "recovery", len(self._rounds[self.stage])
        self._target = None
        return self._close_(best.keep)

    def _try_(self, orders: Orders) -> _Trial:
        """What fits as far as is known, and how much it uses."""
        keep = self._units.fitting(orders, self.limits, self._target)
        limits, widths = self._learn_(keep), self._units.rounded(keep)
        return _Trial(keep, limits, max(limit.used(widths) for limit in limits))

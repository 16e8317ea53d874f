"""Close gates until budgets are met, then hold what is left open.

For each budget in turn: *warm up* with every gate held open; *close*, following a plan
from the present cost to the one asked for; *recover* with every gate held open again.
While closing, multipliers raise the strengths of the penalty as far as gates lag behind
the plan, and what still lags is closed outright, in the order in which gates would have
closed. All the while a *target set* is spared: the best units that just fit the budget.

The multipliers follow the nuPI rule: proportional-integral control, which grows while a
constraint is violated, and reacts to how fast that changes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
    marginal,
)
from diffprune._budget.selection import Masks, UnitSelection
from diffprune._core.types import Float, Int
from diffprune._costs.network import Network
from diffprune.errors import ArgumentError
from diffprune.gates import Gate

Phase: TypeAlias = Literal["warm-up", "closing", "recovery", "met"]

WARM_UP: Final = 0.1
CLOSED_BY: Final = 0.5
_TICKS: Final = 50
_TRIALS: Final = 6
# Logarithms of multipliers: hardly felt, at first, and worth a loss of one.
_LOW, _FIRST, _HIGH = math.log(1e-8), math.log(1e-3), math.log(1.0)


@dataclass(frozen=True)
class Gains:
    """How a multiplier answers to errors.

    Attributes:
        integral: To errors themselves.
        proportional: To changes of the smoothed error.
        smoothing: Share of the past in the smoothed error.
    """

    integral: float
    proportional: float = 0.0
    smoothing: float = 0.0


@dataclass(frozen=True)
class Multiplier:
    """A controlled number, and the smoothed error so far."""

    value: float
    smoothed: float = 0.0

    def after(
        self, error: float, gains: Gains, low: float, high: float
    ) -> "Multiplier":
        """The multiplier after one more error, kept within bounds.

        Examples:
            >>> Multiplier(0.0).after(2.0, Gains(0.5), 0.0, 9.0).value
            1.0
        """
        smoothed = gains.smoothing * self.smoothed + (1 - gains.smoothing) * error
        trend = smoothed - self.smoothed
        change = gains.integral * error + gains.proportional * trend
        return Multiplier(min(max(self.value + change, low), high), smoothed)


_GAINS: Final = Gains(integral=1.0, proportional=1.0, smoothing=0.5)


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


@final
class Controller:
    """Steers the gates of a model to one budget after the other.

    Args:
        budgets: What to reach, in turn.
        network: The whole model.
        gates: The gates of its groups, in their order.
        kept: The units that are left of each gate, as they were numbered at first. It
            follows removals.
        round_to: Widths are multiples of this.
        read: From the units that each gate keeps to those that the data then has.
        measure: From the units that each gate keeps to measured costs, by name, where a
            cost has to be timed.

    Attributes:
        strengths: How hard to push on the units of each gate, until the next tick.
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
        kept: Mapping[str, Int[Tensor, " left"]],
        round_to: int = 1,
        read: Callable[[Masks], Masks] = dict,
        measure: Callable[[Masks], Mapping[str, Measured]] | None = None,
    ) -> None:
        self.budgets, self._gates, self._measure = tuple(budgets), gates, measure
        self._steps = [budget.needed_steps() for budget in budgets]
        self._units = UnitSelection(gates, network.widths(), round_to, read)
        self.kept, self._sizes = kept, {n: len(units) for n, units in kept.items()}
        self._limits = [*make_limits(budgets, network)]
        for limits in self._limits:
            check_reachable(limits, self._units.least())
        self.stage, self.phase, self._start = 0, "warm-up", 0
        self._multipliers, self._begin = self._reset()
        self._target: Masks = {}  # in first numbers
        self.strengths = dict.fromkeys(gates, 0.0)
        for gate in gates.values():
            hold_open_(gate)

    @property
    def limits(self) -> Sequence[Limit]:
        """The limits of the budget that is being met."""
        return self._limits[self.stage]

    def is_due(self, step: int) -> bool:
        """Whether there is something to do after so many steps."""
        taken, steps = step - self._start, self._steps[self.stage]
        if self.phase == "warm-up":
            return taken >= WARM_UP * steps
        if self.phase == "closing":
            every = math.ceil((CLOSED_BY - WARM_UP) * steps / _TICKS)
            return taken % every == 0 or taken >= CLOSED_BY * steps
        return self.phase == "recovery" and taken >= steps

    @torch.no_grad()
    def tick(self, step: int) -> Tick:
        """Follow the plan; call `after_removal_` when what is to go has gone."""
        if self.phase == "recovery":
            return self._next_(step)
        if self.phase == "warm-up":
            self._let_close_()
        part = (step - self._start) / self._steps[self.stage]
        return self._close_(min(1.0, (part - WARM_UP) / (CLOSED_BY - WARM_UP)))

    @torch.no_grad()
    def finish(self) -> Masks | None:
        """Meet the budget now, if that is still to be done; what is to go for it."""
        if self.phase == "warm-up":
            self._let_close_()
        return self._close_rest_() if self.phase == "closing" else None

    @torch.no_grad()
    def after_removal_(self) -> None:
        """After a removal: push on what is left, or hold it once the budget is met."""
        self._learn_(self._target_now() or self._units.open())
        if self.phase == "recovery" and self._is_too_much():
            self.phase = "closing"  # a little more has to go, right after the next step
        if self.phase == "closing":
            prices = [math.exp(multiplier.value) for multiplier in self._multipliers]
            pushes = marginal(self.limits, prices, self.widths()).clamp(min=0)
            pushes *= self._units.left()
            self.strengths = dict(zip(self._gates, pushes.tolist(), strict=True))
        elif self.phase == "recovery":
            self.strengths = dict.fromkeys(self._gates, 0.0)
            for gate in self._gates.values():
                hold_open_(gate)

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
            "begin": self._begin,
            "strengths": self.strengths,
            "factors": [limit.factor for limit in self.limits],
            "multipliers": [asdict(multiplier) for multiplier in self._multipliers],
            "target_set": {
                name: units.tolist() for name, units in self._target.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from there; thresholds are the gates' own to load.

        Raises:
            ArgumentError: If the state is that of other budgets.
        """
        self.check_state(state)
        self.stage, self.phase = state["stage"], state["phase"]
        self._start, self._begin = state["start"], list(state["begin"])
        self.strengths = dict(state["strengths"])
        self._limits[self.stage] = tuple(
            replace(limit, factor=factor)
            for limit, factor in zip(self.limits, state["factors"], strict=True)
        )
        self._multipliers = [Multiplier(**saved) for saved in state["multipliers"]]
        self._target = {n: torch.tensor(u) for n, u in state["target_set"].items()}

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Refuse a state that is on its way to something else.

        Raises:
            ArgumentError: If the state is that of other budgets.
        """
        asked = [budget.to_dict() for budget in self.budgets]
        if state["budgets"] != asked:
            raise ArgumentError(
                f"this state is on its way to {state['budgets']}, and this pruner was "
                f"asked for {asked}."
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

    def _let_close_(self) -> None:
        self.phase = "closing"
        for gate in self._gates.values():
            let_close_(gate)
        self._multipliers, self._begin = self._reset()
        self._target = {}

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

    def _reset(self) -> tuple[list[Multiplier], list[float]]:
        widths = self._units.rounded()
        begin = [float(limit.cost(widths)) for limit in self.limits]
        return [Multiplier(_FIRST)] * len(begin), begin

    def _next_(self, step: int) -> Tick:
        met, is_last = self.budgets[self.stage], self.stage + 1 == len(self.budgets)
        self.phase = "met" if is_last else "warm-up"
        self.stage, self._start = self.stage + (not is_last), step
        return Tick(met=met)

    def _close_(self, progress: float) -> Tick:
        """Close what lags behind the plan; the rest once all is within the budget."""
        widths = self._units.rounded()
        if progress == 1 or all(limit.used(widths) <= 1 for limit in self.limits):
            return Tick(self._close_rest_())
        planned = [
            limit.at(progress, begin)
            for limit, begin in zip(self.limits, self._begin, strict=True)
        ]
        self._multipliers = [
            multiplier.after(
                math.log(float(limit.cost(widths)) / plan), _GAINS, _LOW, _HIGH
            )
            for multiplier, limit, plan in zip(
                self._multipliers, self.limits, planned, strict=True
            )
        ]
        worth = self._units.worth()
        target = self._units.target_set(worth, self.limits, self._target_now())
        self._target = self._in_first_numbers(target)
        spared = {n: w.masked_fill(target[n], math.inf) for n, w in worth.items()}
        chosen = self._units.choose(spared, self.limits, planned)
        keep = {n: units & (spared[n] > 0) for n, units in chosen.items()}
        self._units.set_(keep)
        return Tick(keep)

    def _target_now(self) -> Masks:
        """The target set, over the units that are left."""
        return {n: units[self.kept[n]] for n, units in self._target.items()}

    def _in_first_numbers(self, keep: Masks) -> Masks:
        """Masks over the units that are left, as masks over all there ever were."""
        nothing = {n: torch.zeros(s, dtype=torch.bool) for n, s in self._sizes.items()}
        return {n: nothing[n].index_copy(0, self.kept[n], keep[n]) for n in keep}

    def _close_rest_(self) -> Masks:
        """Keep the target set and nothing else; where a cost is timed, try several."""
        tried = [self._try_() for _ in range(1 if self._measure is None else _TRIALS)]
        best = max(tried, key=lambda trial: (trial.used <= 1, -abs(1 - trial.used)))
        self._limits[self.stage] = best.limits
        self.phase, self._target = "recovery", {}
        self._units.set_(best.keep)
        return best.keep

    def _try_(self) -> _Trial:
        """What fits as far as is known, and how much it uses."""
        units = self._units
        keep = units.target_set(units.worth(), self.limits, self._target_now())
        limits, widths = self._learn_(keep), units.rounded(keep)
        return _Trial(keep, limits, max(limit.used(widths) for limit in limits))

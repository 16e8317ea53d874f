"""Closes gates until budgets are met, then holds what is left. Knows no model.

For each budget in turn: *warm up* with every gate held open; *close*, following a plan
from the present cost to the one asked for; *recover* with every gate held open again.
While closing, multipliers raise the strengths of the penalty as far as gates lag behind
the plan, and what still lags is closed outright, in the order in which gates would have
closed. All the while a *landing* is spared: units that just fit the budget.
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
from diffprune._budget.multiplier import Gains, Multiplier
from diffprune._budget.selection import Crowd, Masks
from diffprune._core.types import Bool, Float
from diffprune._costs.network import Network
from diffprune.errors import ArgumentError
from diffprune.gates import Gate

Phase: TypeAlias = Literal["warm-up", "closing", "recovery", "met"]

WARM_UP: Final = 0.1
CLOSED_BY: Final = 0.5
_LOOKS: Final = 50
_TRIALS: Final = 6
_GAINS: Final = Gains(integral=1.0, proportional=1.0, smoothing=0.5)
# Logarithms of multipliers: hardly felt, at first, and worth a loss of one.
_LOW, _FIRST, _HIGH = math.log(1e-8), math.log(1e-3), math.log(1.0)


@dataclass(frozen=True)
class Look:
    """What came of a look: units to remove, and a budget that was met and healed."""

    closed: Masks | None = None
    met: Budget | None = None


@dataclass(frozen=True)
class _Trial:
    """Units that were thought to fit, limits that know better, and what they use."""

    kept: Masks
    limits: tuple[Limit, ...]
    used: float


@final
class Controller:
    """Steers the gates of a model to one budget after the other.

    Args:
        budgets: What to reach, in turn.
        network: The whole model.
        gates: The gates of its groups, in their order.
        round_to: Widths are multiples of this.
        unread: From units that are closed to those that nobody reads then, of any gate.
        measure: What is left costs now if these units go, where that has to be timed.

    Attributes:
        strengths: How hard to push on the units of each gate, until the next look.
        stage: The number of the budget that is being met.
        phase: What is being done for it.

    Raises:
        ArgumentError: If a budget cannot be met.
    """

    def __init__(
        self,
        budgets: Sequence[Budget],
        network: Network,
        gates: Mapping[str, Gate],
        round_to: int = 1,
        unread: Callable[[Masks], Masks] = dict,
        measure: Callable[[Masks], Mapping[str, Measured]] | None = None,
    ) -> None:
        self.budgets, self._gates, self._measure = tuple(budgets), gates, measure
        self._crowd = Crowd(gates, network.widths(), round_to, unread)
        self._limits = [*make_limits(budgets, network)]
        for limits in self._limits:
            check_reachable(limits, self._crowd.least())
        self.stage, self.phase, self._start = 0, "warm-up", 0
        self._multipliers, self._begin = self._reset()
        self._landing: Masks = {}
        self.strengths = dict.fromkeys(gates, 0.0)
        for gate in gates.values():
            hold_open_(gate)

    @property
    def limits(self) -> Sequence[Limit]:
        """The limits of the budget that is being met."""
        return self._limits[self.stage]

    def is_due(self, step: int) -> bool:
        """Whether there is something to do after so many steps."""
        taken, steps = step - self._start, self.budgets[self.stage].steps
        if self.phase == "warm-up":
            return taken >= WARM_UP * steps
        if self.phase == "closing":
            every = math.ceil((CLOSED_BY - WARM_UP) * steps / _LOOKS)
            return taken % every == 0 or taken >= CLOSED_BY * steps
        return self.phase == "recovery" and taken >= steps

    @torch.no_grad()
    def look(self, step: int) -> Look:
        """Follow the plan; call `settle_` when what is to go has gone."""
        if self.phase == "recovery":
            return self._next_(step)
        if self.phase == "warm-up":
            self._let_close_()
        part = (step - self._start) / self.budgets[self.stage].steps
        return self._close_(min(1.0, (part - WARM_UP) / (CLOSED_BY - WARM_UP)))

    @torch.no_grad()
    def finish(self) -> Masks | None:
        """Meet the budget now, if that is still to be done; what is to go for it."""
        if self.phase == "warm-up":
            self._let_close_()
        return self._land_() if self.phase == "closing" else None

    @torch.no_grad()
    def settle_(self) -> None:
        """After a removal: push on what is left, or hold it once the budget is met."""
        self._learn_(self._landing or self._crowd.open())
        if self.phase == "recovery" and self._is_too_much():
            self.phase = "closing"  # a little more has to go, right after the next step
        if self.phase == "closing":
            prices = [math.exp(multiplier.value) for multiplier in self._multipliers]
            pushes = marginal(self.limits, prices, self.widths()).clamp(min=0)
            pushes *= self._crowd.left()
            self.strengths = dict(zip(self._gates, pushes.tolist(), strict=True))
        elif self.phase == "recovery":
            self.strengths = dict.fromkeys(self._gates, 0.0)
            for gate in self._gates.values():
                hold_open_(gate)

    def widths(self) -> Float[Tensor, " groups"]:
        """Open units per gate."""
        return self._crowd.widths()

    def keep_(self, name: str, units: Bool[Tensor, " units"]) -> None:
        """Follow a removal of units."""
        if name in self._landing:
            self._landing[name] = self._landing[name][units.cpu()]

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
            "landing": {name: units.tolist() for name, units in self._landing.items()},
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
        self._landing = {n: torch.tensor(u) for n, u in state["landing"].items()}

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
        widths = self._crowd.rounded()
        return {limit.name: limit.used(widths) for limit in self.limits}

    def report(self) -> list[str]:
        """What was asked for and what is used, a line for each limit."""
        widths = self._crowd.rounded()
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
        self._landing = {}

    def _is_too_much(self) -> bool:
        """Whether a limit is exceeded, and there is something left to close."""
        widths = self._crowd.rounded()
        is_above = any(limit.used(widths) > 1 for limit in self.limits)
        return is_above and bool((widths > self._crowd.least()).any())

    def _learn_(self, kept: Masks) -> tuple[Limit, ...]:
        """Correct predictions; limits as they are if what was measured is believed."""
        if self._measure is None:
            return tuple(self.limits)
        widths = self._crowd.rounded(kept)
        costs = self._measure({name: ~units for name, units in kept.items()})
        exact = [limit.measured(widths, costs.get(limit.name)) for limit in self.limits]
        pairs = zip(self.limits, exact, strict=True)
        self._limits[self.stage] = tuple(old.halfway(new) for old, new in pairs)
        return tuple(exact)

    def _reset(self) -> tuple[list[Multiplier], list[float]]:
        widths = self._crowd.rounded()
        begin = [float(limit.cost(widths)) for limit in self.limits]
        return [Multiplier(_FIRST)] * len(begin), begin

    def _next_(self, step: int) -> Look:
        met, is_last = self.budgets[self.stage], self.stage + 1 == len(self.budgets)
        self.phase = "met" if is_last else "warm-up"
        self.stage, self._start = self.stage + (not is_last), step
        return Look(met=met)

    def _close_(self, progress: float) -> Look:
        """Close what lags behind the plan; land once nothing is above the budget."""
        widths, crowd = self._crowd.rounded(), self._crowd
        if progress == 1 or all(limit.used(widths) <= 1 for limit in self.limits):
            return Look(self._land_())
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
        worth = crowd.worth()
        self._landing = crowd.landing(worth, self.limits, self._landing)
        spared = {
            n: w.masked_fill(self._landing[n], math.inf) for n, w in worth.items()
        }
        kept = crowd.choose(spared, self.limits, planned)
        return Look(crowd.set_({n: kept[n] & (spared[n] > 0) for n in kept}))

    def _land_(self) -> Masks:
        """Keep what just fits the budget, and nothing else; what is timed is tried."""
        tried = [self._try_() for _ in range(1 if self._measure is None else _TRIALS)]
        best = max(tried, key=lambda trial: (trial.used <= 1, -abs(1 - trial.used)))
        self._limits[self.stage] = best.limits
        self.phase, self._landing = "recovery", {}
        return self._crowd.set_(best.kept)

    def _try_(self) -> _Trial:
        """What fits as far as is known, and how much it uses."""
        crowd = self._crowd
        kept = crowd.landing(crowd.worth(), self.limits, self._landing)
        limits, widths = self._learn_(kept), crowd.rounded(kept)
        return _Trial(kept, limits, max(limit.used(widths) for limit in limits))

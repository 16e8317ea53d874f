"""Which units fit a budget; where time is limited, by the clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from torch import Tensor

from diffprune._budget.limits import Limit, Measured, as_costs, merit
from diffprune._choice import Leaving, allocate
from diffprune._choice.allocation import LEAST_UNITS, as_widths
from diffprune._core.types import Bool
from diffprune._core.user_warnings import warn
from diffprune._costs.latency import measure_in_turns
from diffprune._costs.network import Network

_TRIALS: Final = 4
_ENOUGH: Final = 0.9  # who uses less of a limit could have kept more


def fitting_units(
    network: Network,
    leaving: Sequence[Leaving],
    limits: tuple[Limit, ...],
    round_to: int,
) -> tuple[dict[str, Bool[Tensor, " units"]], tuple[Limit, ...]]:
    """The units to keep, and limits that know what they cost.

    Where time is limited, what was chosen is timed, and chosen again if it takes more.
    The clock is not exact, least of all on a busy machine: what used most of the limit
    without exceeding it is taken, and a warning says so if nothing did.
    """
    costs = as_costs(limits)
    fits_two = costs.fit(network.widths().clamp(max=max(LEAST_UNITS, round_to)))
    least = LEAST_UNITS if fits_two else 1
    widths = allocate(leaving, costs, least=least, round_to=round_to)
    if any(one.name == "latency" for one in limits):
        trials = [Trial(widths, _timed(network, limits, widths))]
        while not _ENOUGH <= trials[-1].used <= 1 and len(trials) < _TRIALS:
            costs = as_costs(trials[-1].limits)
            widths = allocate(leaving, costs, least=least, round_to=round_to)
            trials.append(Trial(widths, _timed(network, limits, widths)))
        best = best_of(trials)
        widths, limits = best.widths, best.limits
    pairs = zip(leaving, widths, strict=True)
    return {group.name: group.keep(width) for group, width in pairs}, limits


@dataclass(frozen=True)
class Trial:
    """Widths that were thought to fit, and limits that know what they cost."""

    widths: Sequence[int]
    limits: tuple[Limit, ...]

    @property
    def used(self) -> float:
        """What part of the tightest limit they use."""
        return max(limit.used(as_widths(self.widths)) for limit in self.limits)


def best_of(trials: Sequence[Trial]) -> Trial:
    """Of several, the one that uses most without exceeding a limit, or exceeds least.

    Warns:
        UserWarning: If all exceed a limit.
    """
    best = max(trials, key=lambda trial: merit(trial.used))
    if best.used > 1:
        warn(
            f"the small model was timed {len(trials)} times and always took longer "
            f"than allowed, {best.used:.2f} times as long at best: the machine is "
            "busy, or the model is too small for its time to depend on its widths.\n"
            "Try again when nothing else runs, or limit something that is counted, "
            "such as `macs=`.",
        )
    return best


def _timed(
    network: Network, limits: tuple[Limit, ...], widths: Sequence[int]
) -> tuple[Limit, ...]:
    at = as_widths(widths)
    small = network.narrow(at)
    now, whole = measure_in_turns([small, network.model], network.inputs)
    measured = Measured(now, whole)
    return tuple(
        limit.measured(at, measured) if limit.name == "latency" else limit
        for limit in limits
    )

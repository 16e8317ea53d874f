"""How hard each gate is pushed to close: by group, by cost, by progress."""

import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, final

from diffprune._core.arguments import FINITE, count, number
from diffprune._core.door import door
from diffprune._core.types import Amount
from diffprune._graph import PruneGroup
from diffprune.errors import ArgumentError, UnknownNameError

OneStrength: TypeAlias = Amount | Callable[[PruneGroup], float]
Strength: TypeAlias = OneStrength | Mapping[str, OneStrength]
Scheduled: TypeAlias = Callable[[float], Strength]
"""From the progress of a training, zero to one, to what strengths are then."""


@door
def by_macs(strength: Amount) -> Callable[[PruneGroup], float]:
    """A strength per multiply-add: units that need more of them are pushed harder.

    Args:
        strength: What one multiply-add of a unit adds to the strength of its gate.

    Returns:
        For `Pruner(strength=...)`: a function from a group to its strength.
    """
    return partial(_times, strength, "macs")


@door
def by_parameters(strength: Amount) -> Callable[[PruneGroup], float]:
    """A strength per parameter: units that have more of them are pushed harder.

    Args:
        strength: What one parameter of a unit adds to the strength of its gate.

    Returns:
        For `Pruner(strength=...)`: a function from a group to its strength.
    """
    return partial(_times, strength, "parameters")


def _times(strength: float, cost: str, group: PruneGroup) -> float:
    return strength * getattr(group, cost)


def strength_of(strength: Strength, group: PruneGroup) -> float | None:
    """The strength for one group; None if no pattern matches it.

    Raises:
        ArgumentError: If it is not a number of at least zero.
    """
    if isinstance(strength, Mapping):
        patterns = [p for p in strength if fnmatch.fnmatchcase(group.name, p)]
        return strength_of(strength[patterns[0]], group) if patterns else None
    value = _called(strength, group) if callable(strength) else strength
    return number(f"the strength for `{group.name}`", value)


def _called(strength: Callable[[PruneGroup], float], group: PruneGroup) -> float:
    try:
        return strength(group)
    except TypeError as error:
        raise ArgumentError(
            f"strength= is called with a group, and failed: {error}.\nFor a function "
            "of progress, from 0 to 1, say how long that takes: `steps=...`."
        ) from error


def check_patterns(option: str, patterns: object, names: Sequence[str]) -> None:
    """Refuse patterns of an option that match no name.

    Raises:
        UnknownNameError: If one does not; the message lists the names.
    """
    for pattern in patterns if isinstance(patterns, Mapping) else ():
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            raise UnknownNameError(
                f"{option}: nothing matches `{pattern}`; there are "
                f"{', '.join(f'`{name}`' for name in names)}."
            )


@final
class Strengths:
    """What was asked for, at any time of a training.

    Args:
        strength: How hard; if there are steps, a function of progress.
        steps: After how many steps progress is one; None if strengths do not change.

    Raises:
        ArgumentError: If there are steps and no function.

    Examples:
        >>> Strengths(lambda progress: 1e-4 * progress, steps=200).at(50)
        2.5e-05
    """

    def __init__(
        self, strength: Strength | Scheduled | None, steps: int | None
    ) -> None:
        self._strength: Any = 0.0 if strength is None else strength
        self._steps = steps
        if steps is None:
            return
        count("steps", steps)
        if not callable(strength):
            raise ArgumentError(
                f"steps={steps} says how long a strength takes that is a function of "
                f"progress, and strength={strength!r} is none.\nType `strength=lambda "
                f"progress: 1e-4 * progress, steps={steps}`, or leave `steps=` out."
            )

    @property
    def is_scheduled(self) -> bool:
        """Whether they change from step to step."""
        return self._steps is not None

    def at(self, step: int) -> Strength:
        """What holds after so many steps."""
        if self._steps is None:
            return self._strength
        progress = min(1.0, step / self._steps)
        try:
            return self._strength(progress)
        except (TypeError, AttributeError) as error:
            raise ArgumentError(
                f"strength= is called with the progress, {progress:g}, because "
                f"`steps=` is given, and failed: {error}.\nFor what units cost, type "
                "`strength=lambda progress: dp.by_macs(1e-8 * progress)`."
            ) from error

    def check(self, units: Iterable[PruneGroup], names: Sequence[str]) -> None:
        """Refuse strengths that cannot be meant, be it only later.

        Args:
            units: What has a gate.
            names: Of these, and of what could have one.

        Raises:
            ArgumentError: If a function fails, or returns something else, or a
                penalty would be infinite.
            UnknownNameError: If a pattern matches no name.
        """
        known, steps = list(units), self._steps or 0
        for step in {0, steps // 2, steps}:
            check_patterns("strength", self.at(step), names)
            found = self.of(known, step)
            if sum(found[unit.name] * unit.size for unit in known) > FINITE:
                raise ArgumentError(
                    f"a strength of {max(found.values()):g} is so large that the "
                    "penalty is infinite.\nType `strength=1e-4` to start with."
                )

    def of(self, units: Iterable[PruneGroup], step: int) -> dict[str, float]:
        """By gate, how hard it is pushed after so many steps."""
        strength = self.at(step)
        return {unit.name: strength_of(strength, unit) or 0.0 for unit in units}

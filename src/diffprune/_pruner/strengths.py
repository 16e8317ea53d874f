"""How strongly each group is pushed to close: from what users write to numbers."""

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from diffprune._graph import PruneGroup
from diffprune.errors import ArgumentError, UnknownNameError

OneStrength: TypeAlias = float | Callable[[PruneGroup], float]
Strength: TypeAlias = OneStrength | Mapping[str, OneStrength]

DEFAULT_STRENGTH: Final = 1e-5


def by_macs(strength: float) -> Callable[[PruneGroup], float]:
    """Strength per multiply-add: units that cost more are pushed harder."""
    return lambda group: strength * group.macs


def by_parameters(strength: float) -> Callable[[PruneGroup], float]:
    """Strength per parameter: units that weigh more are pushed harder."""
    return lambda group: strength * group.parameters


def strength_of(strength: Strength, group: PruneGroup) -> float | None:
    """The strength for one group; None if no pattern matches it."""
    if isinstance(strength, Mapping):
        patterns = [p for p in strength if fnmatch.fnmatchcase(group.name, p)]
        return strength_of(strength[patterns[0]], group) if patterns else None
    value = strength(group) if callable(strength) else strength
    if not 0 <= value < float("inf"):
        raise ArgumentError(
            f"the strength for `{group.name}` must be finite and >= 0, got {value}."
        )
    return float(value)


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

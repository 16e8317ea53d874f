"""How strongly each group is pushed to close: from what users write to numbers."""

import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.graph import PruneGroup

Strength: TypeAlias = (
    float | Callable[[PruneGroup], float] | Mapping[str, "float | Callable[[PruneGroup], float]"]
)


def by_macs(strength: float) -> Callable[[PruneGroup], float]:
    """Strength per multiply-add: units that cost more are pushed harder."""
    return lambda group: strength * group.macs


def by_parameters(strength: float) -> Callable[[PruneGroup], float]:
    """Strength per parameter: units that weigh more are pushed harder."""
    return lambda group: strength * group.parameters


def strength_of(strength: Strength, group: PruneGroup) -> float | None:
    """The strength for one group; None if no pattern matches it."""
    if isinstance(strength, Mapping):
        matching = [s for p, s in strength.items() if fnmatch.fnmatchcase(group.name, p)]
        return strength_of(matching[0], group) if matching else None
    value = strength(group) if callable(strength) else strength
    if not value >= 0:
        raise ArgumentError(f"the strength for `{group.name}` must be >= 0, got {value}.")
    return float(value)


def check_patterns(strength: Strength, names: Sequence[str]) -> None:
    """Refuse patterns that match no gate."""
    if not isinstance(strength, Mapping):
        return
    for pattern in strength:
        if not fnmatch.filter(names, pattern):
            raise UnknownNameError(
                f"strength: nothing matches `{pattern}`; there are "
                f"{', '.join(f'`{name}`' for name in names)}."
            )

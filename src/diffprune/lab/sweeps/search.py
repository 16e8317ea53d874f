"""A search (`Search`): ranges to look in, what to look for, and for how long."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from diffprune._core.amounts import UNITS, absolute, is_fraction
from diffprune._core.arguments import number
from diffprune._core.door import check_fields
from diffprune._core.types import Count
from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.lab.formatting import listed
from diffprune.lab.runs.records import Epoch, Outcome
from diffprune.lab.training.recipe import Recipe

End: TypeAlias = float | str

NUMBERS: Final = (
    "strength", "gate_lr", "lr", "weight_decay", "decay_factor", "clip_norm",
)  # fmt: skip
"""What a search can look for in a recipe, beside limits of its budget."""

GOALS: Final = ("error", "macs", "parameters")
"""What a search can make small."""


@dataclass(frozen=True)
class Range:
    """Positive numbers from low to high, on a log scale.

    Attributes:
        low: The least.
        high: The greatest.
        unit: What both are counted in; empty for plain numbers.
    """

    low: float
    high: float
    unit: str = ""

    def amount(self, value: float) -> End:
        """A number of this range, with its unit."""
        return f"{value:.6g} {self.unit}" if self.unit else value


@dataclass(frozen=True, kw_only=True)
class Search:
    """Trials of one recipe with numbers that Optuna chooses, from what came of others.

    Attributes:
        ranges: From where to where, by name: limits of a budget such as `macs`, or
            `strength`, `gate_lr`, `lr`, `weight_decay`, `decay_factor`, `clip_norm`.
            All of them are searched on a log scale. Several limits are one budget.
        trials: How many there are, those of earlier calls included.
        goals: What should be small: `error` on held-out data, `macs`, `parameters`.
        seeds: Runs of each trial, with different seeds; their mean counts.
        sampler: What chooses: `tpe` needs few trials, `nsga2` (a genetic algorithm)
            needs hundreds, `random` does not learn.
        prune: Whether trials are given up that do worse after an epoch than half of the
            others did. Optuna can do this for one goal only.

    Examples:
        >>> Search(ranges={"strength": (1e-5, 1e-2)}, trials=30).goals
        ('error', 'macs')
    """

    ranges: Mapping[str, tuple[End, End]]
    trials: Count = 20
    goals: tuple[str, ...] = GOALS[:2]
    seeds: Count = 1
    sampler: Literal["tpe", "nsga2", "random"] = "tpe"
    prune: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        self.read()
        _check_goals(self.goals)
        if self.prune and len(self.goals) > 1:
            raise ArgumentError(
                f"trials can be given up early for one goal only, and there are "
                f"{len(self.goals)}: {listed(self.goals)}. Optuna cannot prune trials "
                "of a search with several goals.\nLeave `prune` out, or fix what may "
                "be left and look for the least error: `--budget macs=0.3 --search "
                "gate_lr=1e-3..1e-1 --goal error --prune`."
            )

    def read(self) -> dict[str, Range]:
        """The ranges as numbers.

        Raises:
            ArgumentError: If there is none, or one is empty or cannot be meant.
            UnknownNameError: If nothing of that name can be searched.
        """
        if not self.ranges:
            raise ArgumentError(
                "a search needs ranges to look in, such as {'macs': (0.1, 0.6)}."
            )
        pressing = [name for name in self.ranges if name in UNITS]
        if pressing and "strength" in self.ranges:
            raise ArgumentError(
                f"a budget finds its own strength: search {listed(pressing)} or "
                "`strength`, not both."
            )
        return {name: _range(name, *ends) for name, ends in self.ranges.items()}

    def names(self) -> list[str]:
        """What the trials are called."""
        return [f"trial-{number:03d}" for number in range(self.trials)]

    def recipes(
        self, recipe: Recipe, name: str, values: Mapping[str, float]
    ) -> dict[str, Recipe]:
        """The runs of a trial, by the names of their folders.

        Args:
            recipe: What all trials have in common.
            name: What the trial is called.
            values: The numbers that were chosen for it.
        """
        one = varied(recipe, {n: self.read()[n].amount(v) for n, v in values.items()})
        folders = enumerate(self.folders(recipe, name), start=recipe.seed)
        return {folder: replace(one, seed=seed) for seed, folder in folders}

    def folders(self, recipe: Recipe, name: str) -> list[str]:
        """What the folders of a trial are called, one for each seed."""
        if self.seeds == 1:
            return [name]
        seeds = range(recipe.seed, recipe.seed + self.seeds)
        return [f"{name}-seed{seed}" for seed in seeds]


def varied(recipe: Recipe, values: Mapping[str, End]) -> Recipe:
    """A recipe with other numbers; limits are those of one budget, the only ones.

    Examples:
        >>> recipe = Recipe(name="mine", epochs=5, strength=1e-3)
        >>> found = varied(recipe, {"macs": 0.3, "size": "9 kB", "gate_lr": 0.1})
        >>> found.budget, found.strength, found.gate_lr
        ({'macs': 0.3, 'size': '9 kB'}, None, 0.1)
    """
    changes: dict[str, Any] = {n: v for n, v in values.items() if n not in UNITS}
    if budget := {name: value for name, value in values.items() if name in UNITS}:
        changes |= {"budget": budget, "strength": None}
    elif "strength" in changes:
        changes |= {"budget": None}
    return replace(recipe, **changes)


def searched_value(recipe: Recipe, name: str) -> Any:  # noqa: ANN401 - a number, or with a unit
    """A number of a recipe, or a limit of its budget; None if it has none."""
    return (recipe.budget or {}).get(name) if name in UNITS else getattr(recipe, name)


def worth_of(record: Epoch | Outcome, goal: str) -> float:
    """What a network has come to, by a goal: an error, or a cost."""
    if goal != "error":
        return float(getattr(record, goal))
    choice = record.validation_error
    return record.test_error if choice is None else choice


def read_ranges(words: Sequence[str]) -> dict[str, tuple[End, End]]:
    """Read ranges as they are typed: two numbers, or amounts with a unit.

    Raises:
        ArgumentError: If there is no name, or not two ends.

    Examples:
        >>> read_ranges(["strength=1e-5..1e-2", "latency=1ms..5ms"])
        {'strength': (1e-05, 0.01), 'latency': ('1ms', '5ms')}
    """
    ranges = dict[str, tuple[End, End]]()
    for word in words:
        name, _, typed = (part.strip() for part in word.partition("="))
        low, _, high = (part.strip() for part in typed.partition(".."))
        if not (name and low and high):
            raise ArgumentError(
                f"`{word}` is no range: type `--search {name or 'macs'}="
                "LOW..HIGH`, such as `--search strength=1e-5..1e-2`."
            )
        if name in ranges:
            raise ArgumentError(f"`{name}` has two ranges: type one `--search {name}`.")
        ranges[name] = _end(low), _end(high)
    return ranges


def _end(text: str) -> End:
    try:
        return float(text)
    except ValueError:
        return text


def _check_goals(goals: Sequence[str]) -> None:
    if not goals:
        raise ArgumentError("a search needs a goal, such as `--goal error`.")
    for goal in goals:
        if goal not in GOALS:
            raise UnknownNameError(
                f"a search cannot have the goal `{goal}`; there are {listed(GOALS)}."
            )
    if len(set(goals)) < len(goals):
        raise ArgumentError(f"each goal counts once, got {listed(goals)}.")


def _range(name: str, low: End, high: End) -> Range:
    if name not in UNITS and name not in NUMBERS:
        raise UnknownNameError(
            f"a search cannot look for `{name}`; there are {', '.join(UNITS)} of a "
            f"budget and {', '.join(NUMBERS)} of a recipe."
        )
    found = (_amounts if name in UNITS else _numbers)(name, low, high)
    if found.low == found.high:
        raise ArgumentError(
            f"the range {name}={low}..{high} is empty. For one value type `--vary "
            f"{name}={low}`; for a range its ends have to differ."
        )
    if found.low > found.high:
        raise ArgumentError(
            f"the range {name}={low}..{high} is reversed: type `--search "
            f"{name}={high}..{low}`."
        )
    return found


def _numbers(name: str, low: End, high: End) -> Range:
    for end in (low, high):
        if isinstance(end, str):
            raise ArgumentError(f"{name}={end!r} is no number: {name} has no units.")
        if number(name, end) <= 0:
            raise ArgumentError(
                f"{name}={end:g} cannot be an end of a range on a log scale: type a "
                f"small positive number, such as `--search {name}=1e-6..{high}`."
            )
    return Range(float(low), float(high))


def _amounts(name: str, low: End, high: End) -> Range:
    """A range of amounts, in the unit of its lower end."""
    least, most = (absolute(end, 1.0, name) for end in (low, high))
    if isinstance(low, str) != isinstance(high, str):
        raise ArgumentError(
            f"{name}={low}..{high} has a unit at one end: give both ends one, or none."
        )
    if not isinstance(low, str):
        if is_fraction(low) != is_fraction(high):
            raise ArgumentError(
                f"{name}={low:g}..{high} mixes a fraction (up to 1) and an absolute "
                "number: give both ends of a kind."
            )
        return Range(float(low), float(high))
    plain = re.sub(r"[A-Za-z]+\s*$", "", low)
    scale = least / float(plain)
    return Range(float(plain), most / scale, low[len(plain) :].strip())

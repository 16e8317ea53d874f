"""The runs of a sweep: one recipe, varied in one value each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from diffprune._core.amounts import UNITS, absolute
from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.lab.training.recipe import Recipe

_NOT_VARIED: Final = {"name", "budget", "gate", "pruner"}


@dataclass(frozen=True)
class Point:
    """One run: its name, which is that of its folder, and its recipe."""

    name: str
    recipe: Recipe


def make_points(
    recipe: Recipe, vary: Mapping[str, Sequence[float | str]]
) -> list[Point]:
    """A run for each value of each cost or number; they are not combined.

    Args:
        recipe: What they have in common.
        vary: Values by name: a limit of `Budget`, or a number of the recipe.

    Raises:
        ArgumentError: If there is nothing to vary.
        UnknownNameError: If neither a budget nor a recipe has something of that name.

    Examples:
        >>> recipe = Recipe(name="mine", epochs=5)
        >>> [p.name for p in make_points(recipe, {"macs": [0.5, 0.1], "lr": [1e-2]})]
        ['macs=0.5', 'macs=0.1', 'lr=0.01']
    """
    points = [
        Point(f"{name}={value}".replace(" ", ""), _varied(recipe, name, value))
        for name, values in vary.items()
        for value in values
    ]
    if not points:
        raise ArgumentError(
            "a sweep needs values to go through, such as {'macs': [0.5, 0.3, 0.1]}."
        )
    return points


def _varied(recipe: Recipe, name: str, value: float | str) -> Recipe:
    numbers = [f.name for f in fields(Recipe) if f.name not in _NOT_VARIED]
    if name in UNITS:
        absolute(value, 1.0, name)  # raises, before anything is trained
        return replace(recipe, budget={name: value}, strength=None)
    if name not in numbers:
        raise UnknownNameError(
            f"a sweep cannot vary `{name}`; there are {', '.join(UNITS)} of a budget "
            f"and {', '.join(numbers)} of a recipe."
        )
    pressure = {"budget": None} if name == "strength" else {}
    return replace(recipe, **pressure, **{name: value})

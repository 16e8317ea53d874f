"""Find tasks and recipes by name: a built-in one, or a function in a user's file."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from diffprune._core.arguments import shown
from diffprune._core.files import reading
from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.lab import defaults
from diffprune.lab.digits import digits_recipe, digits_task
from diffprune.lab.formatting import listed
from diffprune.lab.runs.import_spec import find_callable
from diffprune.lab.runs.records import read_run
from diffprune.lab.training.recipe import MakeRecipe, Recipe
from diffprune.lab.training.task import MakeTask

BUILTIN: Final[Mapping[str, tuple[MakeTask, MakeRecipe]]] = {
    "digits": (digits_task, digits_recipe),
}
"""By name: a task that comes with diffprune, and the recipe it is trained with."""


def load_task(name: str) -> tuple[MakeTask, MakeRecipe]:
    """Find a task, and the recipe it is usually trained with.

    Args:
        name: A built-in task such as `digits`, `file.py:function`, or
            `package.module:function`.

    Raises:
        UnknownNameError: If there is no such task, file or function.
    """
    if name in BUILTIN:
        return BUILTIN[name]
    _, colon, function = name.rpartition(":")
    with reading(Path(name)):
        is_file = Path(name).is_file()
    if is_file:
        raise UnknownNameError(
            f"`{name}` is a file; which function in it? Type `{name}:my_task`."
        )
    if not colon:
        raise UnknownNameError(
            f"no task is called `{name}`; there are {listed(BUILTIN)}.\n"
            "A task of your own is named by file and function: `mine.py:my_task`."
        )
    make_task = find_callable(name)
    _check_takes_recipe(make_task, name)
    return make_task, partial(_plain_recipe, function)


def _check_takes_recipe(make_task: MakeTask, name: str) -> None:
    try:
        inspect.signature(make_task).bind(None)
    except TypeError as error:
        raise ArgumentError(
            f"`{name}` is no task: {error}.\nA task is a function of a recipe, "
            "`def my_task(recipe): ...`, that returns a `diffprune.lab.Task`."
        ) from error


def load_recipe(name: str) -> MakeRecipe:
    """Find a recipe.

    Args:
        name: A built-in task, the folder of a run, or `file.py:function`, a function
            from a seed to a recipe.

    Raises:
        UnknownNameError: If there is no such task, file or function.
        ArgumentError: If the folder holds no run.
    """
    if name in BUILTIN:
        return BUILTIN[name][1]
    if Path(name).is_dir():
        recipe = read_run(Path(name)).recipe
        return lambda seed: replace(recipe, seed=seed)
    return partial(_made_recipe, name, find_callable(name))


def _made_recipe(name: str, make_recipe: Callable[[int], Any], seed: int) -> Recipe:
    """What a user's function returns, if that is a recipe."""
    needed = (
        "A recipe is a function of a seed, `def numbers(seed): ...`, that returns a "
        "`diffprune.lab.Recipe`."
    )
    try:
        found = make_recipe(seed)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise ArgumentError(f"`{name}({seed})` fails: {reason}\n{needed}") from error
    if not isinstance(found, Recipe):
        raise ArgumentError(f"`{name}` returns {shown(found)}.\n{needed}")
    return found


def _plain_recipe(name: str, seed: int) -> Recipe:
    """For a task without a recipe."""
    budget = {"macs": defaults.MACS}
    return Recipe(name=name, epochs=defaults.EPOCHS, budget=budget, seed=seed)

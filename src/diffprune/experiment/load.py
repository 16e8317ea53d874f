"""From the name of a task to the task: built in, or a function in a user's file."""

import importlib.util
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Final, cast

from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.experiment.builtin import BUILTIN, MakeRecipe
from diffprune.experiment.recipe import Recipe
from diffprune.experiment.task import MakeTask

EPOCHS: Final = 10
"""For a task that has no recipe of its own."""


def load_task(name: str) -> tuple[MakeTask, MakeRecipe]:
    """Find a task, and the recipe it is usually trained with.

    Args:
        name: A built-in task such as `lenet5-digits`, or `file.py:function`.

    Raises:
        UnknownNameError: If there is no such task, file or function.
    """
    if name in BUILTIN:
        return BUILTIN[name]
    file, colon, function = name.rpartition(":")
    if not colon:
        raise UnknownNameError(
            f"no task is called `{name}`; there are {_listed(BUILTIN)}.\n"
            "A task of your own is named by file and function: `mine.py:my_task`."
        )
    module = _run_file(Path(file))
    found = getattr(module, function, None)
    if not callable(found):
        known = [n for n, value in vars(module).items() if callable(value)]
        raise UnknownNameError(
            f"`{file}` has no function `{function}`; it has {_listed(known)}."
        )
    return cast("MakeTask", found), partial(_plain_recipe, function)


def _plain_recipe(name: str, seed: int) -> Recipe:
    return Recipe(name=name, epochs=EPOCHS, seed=seed)


def _run_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UnknownNameError(f"there is no file `{path}`.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"`{path}` is no Python file: its name lacks `.py`.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"

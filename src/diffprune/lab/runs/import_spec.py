"""Find the function that `file.py:name` or `package.module:name` says, and back."""

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from torch import nn

from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.lab.formatting import listed

_READ: Final = ContextVar[str | None]("read", default=None)
"""The file or module that is being read for a function in it."""


def find_callable(spec: str) -> Callable[..., Any]:
    """Find a function by where it is written.

    Args:
        spec: `file.py:function` or `package.module:function`. The folder of the file,
            or the present one, can be imported from, as under `python`.

    Raises:
        UnknownNameError: If there is no such file, module or function.
        ArgumentError: If the file is no Python.

    Examples:
        >>> find_callable("math:sqrt")(9.0)
        3.0
    """
    place, _, name = spec.rpartition(":")
    try:
        with _being_read(place):
            module = _run_file(Path(place)) if _is_file(place) else _import(place)
    except SyntaxError as error:
        raise ArgumentError(f"`{place}` cannot be read as Python: {error}") from error
    found = getattr(module, name, None)
    if not callable(found):
        defined = [
            n
            for n, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", "") == module.__name__
        ]
        raise UnknownNameError(
            f"`{place}` has no function `{name}`; it has {listed(defined)}."
        )
    return found


def make_module(spec: str) -> nn.Module:
    """Make the model that a function without arguments returns, or that is there.

    Args:
        spec: `file.py:function` or `package.module:function`.

    Raises:
        ArgumentError: If what is there makes no model.
        UnknownNameError: If there is no such file, module or function.
    """
    found: Any = find_callable(spec)
    if isinstance(found, nn.Module):
        return found
    try:
        model = found()
    except TypeError as error:
        raise ArgumentError(
            f"`{spec}()` fails: {error}\nName a function that needs no arguments and "
            "returns a model."
        ) from error
    if not isinstance(model, nn.Module):
        raise ArgumentError(
            f"`{spec}()` returns {type(model).__name__}, not a `torch.nn.Module`."
        )
    return model


@contextmanager
def _being_read(place: str) -> Generator[None]:
    outer = _READ.set(place)
    try:
        yield
    finally:
        _READ.reset(outer)


def check_is_not_read() -> None:
    """Refuse to begin a run while a file is only read for a function in it.

    Raises:
        ArgumentError: If one is, and begins a run by itself.
    """
    place = _READ.get()
    if place is not None:
        raise ArgumentError(
            f"`{place}` was read for a function in it, and began a run by itself.\nPut "
            'what it runs under `if __name__ == "__main__":`.'
        )


def code_of(spec: str) -> Path | None:
    """Which file or package `find_callable` would run; None if there is none.

    Args:
        spec: `file.py:function` or `package.module:function`.
    """
    place, _, _ = spec.rpartition(":")
    if _is_file(place):
        return Path(place).resolve()
    package = place.partition(".")[0]
    found = PathFinder.find_spec(package, [str(Path.cwd()), *sys.path])
    if found is None:
        return None
    folders = [*(found.submodule_search_locations or ())]
    where = folders[0] if folders else found.origin
    return None if where is None else Path(where).resolve()


def spell(function: Callable[..., Any], folder: Path) -> str | None:
    """Say how `find_callable` finds a function, if it can.

    Args:
        function: Any.
        folder: What the path of a file is relative to, so that both can move.

    Examples:
        >>> spell(find_callable, Path())
        'diffprune.lab.runs.import_spec:find_callable'
        >>> spell(lambda: 0, Path())
    """
    if not inspect.isfunction(function) or not function.__qualname__.isidentifier():
        return None
    if "." in (function.__module__ or ""):
        return f"{function.__module__}:{function.__name__}"
    file = Path(inspect.getfile(inspect.unwrap(function)))
    if not file.is_file():
        return None
    # From where the folder is, not from where a link to it is.
    place = os.path.relpath(file.parent.resolve() / file.name, folder.resolve())
    return f"{Path(place).as_posix()}:{function.__name__}"


def _is_file(place: str) -> bool:
    return place.endswith(".py") or os.sep in place or Path(place).is_file()


def _run_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UnknownNameError(f"there is no file `{path}`.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"`{path}` is no Python file: its name lacks `.py`.")
    module = importlib.util.module_from_spec(spec)
    _can_import_from(path.resolve().parent)
    # Data classes and the workers of a `DataLoader` look their module up by name.
    sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        if "no known parent package" not in str(error):
            raise
        raise ArgumentError(
            f"`{path}` imports from the package that it is a part of, and was named as "
            f"a file.\nName it as a module, `{_dotted(path.resolve())}:...`, from the "
            "folder that holds the package."
        ) from error
    return module


def _dotted(path: Path) -> str:
    """A file as a module of its package; a folder without `__init__.py` is one, too."""
    outer = [path.parent.name]
    for folder in path.parent.parents:
        if not (folder / "__init__.py").is_file():
            break
        outer.insert(0, folder.name)
    return ".".join([*outer, path.stem])


def _import(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise UnknownNameError(
            f"`{name}` is no module. Name a file and a function, as in "
            "`mine.py:my_task`."
        )
    _can_import_from(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # What the module itself misses is the user's news, with its traceback.
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise UnknownNameError(
            f"there is no module `{error.name}`. Name a file, as in `mine.py:my_task`, "
            "or a module that Python can import from here."
        ) from error


def _can_import_from(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

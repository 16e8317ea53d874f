"""Options that several commands share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from diffprune._core.amounts import UNITS, absolute
from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.lab.formatting import listed

Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        metavar="",
        help="Run the code that the run names, wherever that code is.",
    ),
]
RECIPE = "recipe.json"

AsJson = Annotated[
    bool,
    typer.Option(
        "--json", metavar="", help="Print the result as JSON, and nothing else."
    ),
]
RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder that `diffprune train` wrote.")
]
RunFolders = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help="Folders that `diffprune train` wrote."),
]
TaskOfRun = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="FILE.PY:FUNCTION",
        help="Where the task of the run is now, if it has moved.",
    ),
]


def check_spec(spec: str) -> None:
    """Refuse `file.py:function` if there is no such file, before torch is imported.

    Raises:
        UnknownNameError: Naming the file.
    """
    place, colon, _ = spec.rpartition(":")
    if colon and place.endswith(".py") and not Path(place).is_file():
        raise UnknownNameError(f"there is no file `{place}`.")


def check_runs(*folders: Path) -> None:
    """Refuse folders without a run, before torch is imported.

    Raises:
        ArgumentError: Naming the folder.
    """
    for folder in folders:
        if not (folder / RECIPE).is_file():
            raise ArgumentError(
                f"`{folder}` holds no run: there is no `{RECIPE}` in it."
            )


def parse_budget(specs: Sequence[str]) -> dict[str, float | str]:
    """Read limits such as `macs=0.3`; several may stand in one, with commas.

    Raises:
        ArgumentError: If a limit lacks its name or its amount, is no amount, or is
            given twice.
        UnknownNameError: If nothing of that name can be limited.

    Examples:
        >>> parse_budget(["macs=0.3,size=200 kB"])
        {'macs': 0.3, 'size': '200 kB'}
    """
    limits = [_parse_limit(part) for spec in specs for part in spec.split(",")]
    names = [name for name, _ in limits]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ArgumentError(
            f"`{twice[0]}` is limited twice: {', '.join(specs)}.\nLeave one out; for "
            "a run of each, type `diffprune sweep`."
        )
    return dict(limits)


def _parse_limit(spec: str) -> tuple[str, float | str]:
    name, _, amount = (part.strip() for part in spec.partition("="))
    if not name or not amount:
        raise ArgumentError(
            f"`{spec}` is no limit: type `--budget macs=0.3` for three tenths of the "
            "multiply-adds."
        )
    if name not in UNITS:
        raise UnknownNameError(
            f"a budget cannot limit `{name}`; there are {listed(UNITS)}."
        )
    read = _number(amount)
    absolute(read, 1.0, name)
    return name, read


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def read_values(words: Sequence[str]) -> dict[str, list[float | str]]:
    """Read values as they are typed: numbers, or amounts with a unit.

    Raises:
        ArgumentError: If there is no name, no value, or no such amount of a cost.

    Examples:
        >>> read_values(["macs=0.5,0.3", "latency=5ms"])
        {'macs': [0.5, 0.3], 'latency': ['5ms']}
    """
    values = dict[str, list[float | str]]()
    for word in words:
        name, equals, typed = word.partition("=")
        if not (name and equals and typed):
            raise ArgumentError(
                f"`{word}` does not say what to vary: type `--vary macs=0.5,0.3,0.1`."
            )
        values.setdefault(name, []).extend(map(_value, typed.split(",")))
    for name in values.keys() & UNITS.keys():
        for value in values[name]:
            absolute(value, 1.0, name)
    return values


def _value(text: str) -> float | str:
    return int(text) if text.isdigit() else _number(text)

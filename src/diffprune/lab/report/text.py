"""Numbers as sentences and cells; knows neither HTML nor plots."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from diffprune.lab.report.networks import Network, ratio, spell_widths
from diffprune.lab.report.sources import Source
from diffprune.lab.training.progress_bar import short
from diffprune.lab.training.recipe import Recipe

UNKNOWN = "not recorded"


@dataclass(frozen=True)
class Table:
    """What a table of a report says; the first cell of a row is its heading."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Cell(NamedTuple):
    """A number, and what it is of the first one in its row."""

    value: str
    share: str = ""


@dataclass(frozen=True)
class Comparison:
    """Networks side by side: their names, and by title a cell for each of them."""

    names: tuple[str, ...]
    rows: Mapping[str, tuple[Cell, ...]]


@dataclass(frozen=True)
class Tile:
    """One large number, and what it is."""

    value: str
    label: str


def headline(smallest: Network, dense: Network, count: int) -> str:
    """What came out, in a few words.

    Args:
        smallest: The network with the fewest multiply-adds.
        dense: What it was before.
        count: Of the networks it was chosen from.
    """
    left = ratio(smallest.macs, dense.macs)
    macs = f"{short(smallest.macs or 0)}" if left is None else f"{percent(left)} of the"
    which = "" if count == 1 else f"{smallest.name}, smallest of {count}: "
    text = f"{which}{_errors(smallest, dense)} with {macs} multiply-adds."
    return text if which else text[0].upper() + text[1:]


def asked(source: Source) -> str:
    """What a run was asked for, and how far it is."""
    recipe, outcome = source.run.recipe, source.run.outcome
    so_far = "" if outcome else f", {source.last.number} so far"
    return (
        f"Asked for: {_gates(recipe)}, {recipe.epochs} epochs{so_far}, "
        f"seed {recipe.seed}."
    )


def got(small: Network, dense: Network) -> str:
    """What came out, next to what there was, as far as either is known."""
    left = ratio(small.parameters, dense.parameters)
    share = "" if left is None else f", {percent(left)} of what there was"
    trained = dense.error is not None
    before = f"; the dense one errs on {dense.error:.2f} %" if trained else ""
    return (
        f"What came out has {small.parameters:,} parameters{share}, and errs on "
        f"{small.error or 0:.2f} % of the test set{before}."
    )


def tiles(small: Network, dense: Network) -> tuple[Tile, ...]:
    """The numbers that are read first."""
    found = [
        (ratio(dense.macs, small.macs), "fewer multiply-adds"),
        (ratio(dense.parameters, small.parameters), "fewer parameters"),
        (ratio(dense.seconds, small.seconds), "the speed, measured"),
    ]
    times = [Tile(_times(value), label) for value, label in found if value]
    error = Tile(f"{small.error or 0:.2f} %", "test error")
    return (*times, error)


def comparison(dense: Network, networks: Sequence[Network]) -> Comparison:
    """All networks side by side."""
    everyone = (dense, *networks)
    rows = {
        "Test error": [_cell(n.error, None, "{:.2f} %".format) for n in everyone],
        "Parameters": [
            _cell(n.parameters, dense.parameters, "{:,}".format) for n in everyone
        ],
        "Multiply-adds": [_cell(n.macs, dense.macs, "{:,}".format) for n in everyone],
        "Latency": [
            _cell(n.seconds, dense.seconds, duration, "not measured") for n in everyone
        ],
        "File size": [_cell(n.file_size, dense.file_size, size) for n in everyone],
        "Units": [Cell(spell_widths(n.widths) or UNKNOWN) for n in everyone],
    }
    return Comparison(
        tuple(network.name for network in everyone),
        {title: tuple(cells) for title, cells in rows.items()},
    )


def percent(share: float) -> str:
    """Two digits that matter.

    Examples:
        >>> percent(0.04503), percent(1.0), percent(0.3)
        ('4.5 %', '100 %', '30 %')
    """
    number = 100 * share
    return f"{number:.0f} %" if number >= 10 else f"{number:.2g} %"


def size(number: int) -> str:
    """Bytes for people.

    Examples:
        >>> size(52_100), size(1_724_920), size(512)
        ('52.1 kB', '1.72 MB', '512 B')
    """
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number} B"


def duration(seconds: float) -> str:
    """A time for people.

    Examples:
        >>> duration(0.0123), duration(2.5), duration(0.000045)
        ('12.3 ms', '2.5 s', '45 µs')
    """
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 1e-6:.3g} µs"


def _errors(small: Network, dense: Network) -> str:
    error = f"{small.error or 0:.2f} %"
    if dense.error is None:
        return f"{error} test error"
    if error == f"{dense.error:.2f} %":
        return "the same test error"
    return f"{error} test error (dense {dense.error:.2f} %)"


def _gates(recipe: Recipe) -> str:
    if recipe.strength is None:
        return "no gates"
    if recipe.budget is not None:
        limits = ", ".join(f"{name}={limit}" for name, limit in recipe.budget.items())
        return f"{recipe.gate.u} gates within a budget of {limits}"
    if isinstance(recipe.strength, Mapping):
        return f"{recipe.gate.u} gates with a strength for each"
    return f"{recipe.gate.u} gates with strength {recipe.strength:g}"


def _cell(
    value: float | None,
    whole: float | None,
    write: Callable[[Any], str],
    missing: str = UNKNOWN,
) -> Cell:
    if value is None:
        return Cell(missing)
    return Cell(write(value), percent(value / whole) if whole else "")


def _times(factor: float) -> str:
    number = f"{factor:.0f}" if factor >= 10 else f"{factor:.1f}"
    return f"{number}\N{MULTIPLICATION SIGN}"


def front_note(*, published: bool) -> str:
    """What the plots of error against cost show."""
    if not published:
        return "Down and to the left is better."
    return (
        "Down and to the left is better. Published points are recomputed from the "
        "architectures that the papers print; the tables say where each stands."
    )


def made_with(source: Source) -> str:
    """Versions, machine and date."""
    environment = source.run.environment
    return (
        f"diffprune {environment.get('diffprune')}, torch {environment.get('torch')}, "
        f"Python {environment.get('python')}, {environment.get('machine')}, "
        f"threads: {environment.get('threads')}, {environment.get('date')}."
    )

"""Numbers as sentences and cells; knows neither HTML nor plots."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from diffprune.experiment.view import architecture, short
from diffprune.report.networks import Network, ratio
from diffprune.report.sources import Source

UNKNOWN = "not recorded"
UNMEASURED = "not measured"


@dataclass(frozen=True)
class Table:
    """What a table of a report says; the first cell of a row is its heading."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


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
    macs = ratio(smallest.macs, dense.macs)
    which = "" if count == 1 else f"{smallest.name}, the smallest of {count}: "
    if macs is None:
        return f"{which}{short(smallest.macs or 0)} multiply-adds are left."
    return f"{which}{percent(macs)} of the multiply-adds are left."


def asked_and_got(source: Source, small: Network, dense: Network) -> str:
    """What was asked for and what came out, in a sentence or two."""
    recipe = source.run.recipe
    progress = "" if source.run.outcome else f" (epoch {source.last.number} so far)"
    before = (
        "" if dense.error is None else f"; the dense one errs on {dense.error:.2f} %"
    )
    parameters = ratio(small.parameters, dense.parameters)
    share = "" if parameters is None else f", {percent(parameters)} of what there was"
    return (
        f"Asked for: {recipe.gate.u} gates {_pushed(recipe.strength)} over "
        f"{recipe.epochs} epochs{progress}, seed {recipe.seed}. What came out has "
        f"{small.parameters:,} parameters{share}, and errs on "
        f"{small.error or 0:.2f} % of the test set{before}."
    )


def tiles(small: Network, dense: Network) -> tuple[Tile, ...]:
    """The numbers that are read first."""
    found = [
        (ratio(dense.macs, small.macs), "fewer multiply-adds"),
        (ratio(dense.parameters, small.parameters), "fewer parameters"),
        (ratio(dense.seconds, small.seconds), "faster, measured"),
    ]
    times = [Tile(_times(value), label) for value, label in found if value]
    error = Tile(f"{small.error or 0:.2f} %", "test error")
    return (*times, error)


def comparison(dense: Network, networks: Sequence[Network]) -> Table:
    """All networks side by side; each number with what it is of the dense one."""
    everyone = [dense, *networks]
    cell = partial(_cell, dense=dense)
    return Table(
        ("", *(network.name for network in everyone)),
        (
            ("Test error", *(_error(n.error) for n in everyone)),
            ("Parameters", *(cell(n, "parameters", UNKNOWN) for n in everyone)),
            ("Multiply-adds", *(cell(n, "macs", UNKNOWN) for n in everyone)),
            ("Latency", *(cell(n, "seconds", UNMEASURED) for n in everyone)),
            ("File size", *(cell(n, "file_size", UNKNOWN) for n in everyone)),
            ("Units", *(architecture(n.widths) or "–" for n in everyone)),
        ),
    )


def percent(share: float) -> str:
    """Two digits that matter.

    Example:
        >>> percent(0.04503), percent(1.0), percent(0.3)
        ('4.5 %', '100 %', '30 %')
    """
    number = 100 * share
    return f"{number:.0f} %" if number >= 10 else f"{number:.2g} %"


def size(number: int) -> str:
    """Bytes for people.

    Example:
        >>> size(52_100), size(1_724_920), size(512)
        ('52.1 kB', '1.72 MB', '512 B')
    """
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number} B"


def duration(seconds: float) -> str:
    """A time for people.

    Example:
        >>> duration(0.0123), duration(2.5), duration(0.000045)
        ('12.3 ms', '2.5 s', '45 µs')
    """
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 1e-6:.3g} µs"


def _pushed(strength: object) -> str:
    if isinstance(strength, float | int):
        return f"with strength {strength:g}"
    return "with a strength for each gate"


def _error(error: float | None) -> str:
    return UNKNOWN if error is None else f"{error:.2f} %"


def _cell(network: Network, field: str, missing: str, *, dense: Network) -> str:
    value, whole = vars(network)[field], vars(dense)[field]
    if value is None:
        return missing
    text = {"seconds": duration, "file_size": size}.get(field, "{:,}".format)(value)
    left = ratio(value, whole)
    return text if network is dense or left is None else f"{text} · {percent(left)}"


def _times(factor: float) -> str:
    return f"{factor:.0f}×" if factor >= 10 else f"{factor:.1f}×"


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
        f"{environment.get('threads')} threads, {environment.get('date')}."
    )

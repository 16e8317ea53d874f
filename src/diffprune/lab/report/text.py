"""The sentences, cells and snippets of a report, from runs and their networks."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from diffprune._pruner import RemovalRecord
from diffprune.lab.formatting import (
    duration,
    file_size,
    percent,
    short,
    spell_widths,
    typed,
)
from diffprune.lab.report.networks import (
    Network,
    has_lost,
    ratio,
    uncertainty,
)
from diffprune.lab.runs.records import Run
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


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What certificates say about the removals of one run."""

    run: str
    summary: str
    table: Table


@dataclass(frozen=True, kw_only=True)
class Snippet:
    """Something to copy."""

    title: str
    code: str


def headline(smallest: Network, dense: Network, count: int) -> str:
    """What came out, in a few words; a loss of accuracy comes first.

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


def warning(smallest: Network, dense: Network) -> str | None:
    """What to do if pruning has cost accuracy; None if it has not, or nobody knows."""
    if not has_lost(smallest, dense):
        return None
    return (
        "The network has lost accuracy, by more than chance explains on a test set of "
        f"{smallest.examples:,} examples. Ask for a larger budget or a smaller "
        "strength, or train for longer."
    )


def title(networks: Sequence[Network], dense: Network) -> str:
    """What the page is called."""
    if len(networks) > 1:
        return f"{len(networks)} runs compared: {', '.join(n.name for n in networks)}"
    left = ratio(networks[0].macs, dense.macs)
    if left is None:
        return networks[0].name
    return f"{networks[0].name}: {percent(left)} of the multiply-adds"


def asked(run: Run) -> str:
    """What a run was asked for, and how far it is."""
    recipe, outcome = run.recipe, run.outcome
    so_far = "" if outcome else f", {run.epochs[-1].number} so far"
    return (
        f"Asked for: {_gates(recipe)}, {recipe.epochs} epochs{so_far}, "
        f"seed {recipe.seed}."
    )


def got(small: Network, dense: Network) -> str:
    """What came out, next to what there was, as far as either is known."""
    left = ratio(small.parameters, dense.parameters)
    share = "" if left is None else f", {percent(left)} of the dense one's"
    trained = dense.error is not None
    before = f"; the dense one is wrong on {dense.error:.2f} %" if trained else ""
    return (
        f"The network has {small.parameters:,} parameters{share}, and is wrong "
        f"on {small.error or 0:.2f} % of the test set{before}."
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
        "Test error": [_error_cell(n) for n in everyone],
        "Parameters": [
            _cell(n.parameters, dense.parameters, "{:,}".format) for n in everyone
        ],
        "Multiply-adds": [_cell(n.macs, dense.macs, "{:,}".format) for n in everyone],
        "Latency": [
            _cell(n.seconds, dense.seconds, duration, "not measured") for n in everyone
        ],
        "File size": [_cell(n.file_size, dense.file_size, file_size) for n in everyone],
        "Units": [Cell(spell_widths(n.widths) or UNKNOWN) for n in everyone],
    }
    return Comparison(
        tuple(network.name for network in everyone),
        {title: tuple(cells) for title, cells in rows.items()},
    )


def _errors(small: Network, dense: Network) -> str:
    error, before = f"{small.error or 0:.2f} %", f"{dense.error or 0:.2f} %"
    if dense.error is None:
        return f"{error} test error"
    if has_lost(small, dense):
        return f"test error rose from {before} to {error}"
    if error == before:
        return "the same test error"
    chance = "" if has_lost(small, dense) is None else ", within chance"
    is_better = (small.error or 0) < dense.error
    return f"{error} test error (dense {before}{'' if is_better else chance})"


def _error_cell(network: Network) -> Cell:
    """A test error, and how far chance alone may have moved it."""
    spread = uncertainty(network)
    if network.error is None:
        return Cell(UNKNOWN)
    sign = "" if spread is None else f" \N{PLUS-MINUS SIGN} {spread:.2f}"
    return Cell(f"{network.error:.2f}{sign} %")


def _gates(recipe: Recipe) -> str:
    if recipe.is_dense:
        return "no gates"
    if recipe.budget is not None:
        limits = ", ".join(f"{name}={limit}" for name, limit in recipe.budget.items())
        return f"a budget of {limits}"
    if isinstance(recipe.strength, Mapping):
        return "gates with a strength for each"
    return f"gates with strength {recipe.strength:g}"


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


def front_note(*, with_references: bool) -> str:
    """What the plots of error against cost show."""
    better = "Down and to the left is better."
    where = "The tables say where the numbers of others stand."
    return f"{better} {where}" if with_references else better


def made_with(run: Run) -> str:
    """Versions, machine and date."""
    environment = run.environment
    return (
        f"diffprune {environment.get('diffprune')}, torch {environment.get('torch')}, "
        f"Python {environment.get('python')}, {environment.get('machine')}, "
        f"threads: {environment.get('threads')}, {environment.get('date')}."
    )


def proof(run: Run) -> Proof | None:
    """The worst certificate in words, and all of them in a table; None without any."""
    removals = [removal for removal in run.removals if removal.certificate]
    if not removals:
        return None
    certificates = [r.certificate for r in removals if r.certificate]
    shown = [c.max_relative for c in certificates if not c.is_vacuous]
    vacuous = len(certificates) - len(shown)
    return Proof(
        run=run.name,
        summary=(
            f"{run.name}: {len(removals)} removals, each verified. Outputs before "
            f"and after differ by at most {max(shown, default=math.nan):.1e}, relative "
            "to the largest output."
            + (f" Of {vacuous} the outputs show nothing." if vacuous else "")
        ),
        table=Table(
            (
                "Step",
                "Units left",
                "Parameters",
                "Worth of what left",
                "Absolute difference",
                "Relative difference",
                "Arithmetic",
            ),
            tuple(map(_removal_row, removals)),
        ),
    )


def _removal_row(removal: RemovalRecord) -> tuple[str, ...]:
    certificate = removal.certificate
    assert certificate is not None  # noqa: S101 - others were left out
    return (
        f"{removal.step:,}",
        spell_widths(removal.units),
        f"{removal.parameters:,}",
        _worth(removal.worth),
        f"{certificate.max_absolute:.1e}",
        f"{certificate.max_relative:.1e}",
        certificate.dtype,
    )


def _worth(lost: Mapping[str, float]) -> str:
    """The range over gates of what lost units were worth; one is a mean unit."""
    if not lost:
        return "-"
    least, most = (f"{worth(lost.values()):.2g}" for worth in (min, max))
    return least if least == most else f"{least} to {most}"


def snippets(run: Run) -> list[Snippet]:
    """How to load and export the network of a run, or how to finish the run."""
    folder = run.folder.as_posix()
    if run.outcome is None:
        return [Snippet(title="Finish the run", code=typed("train", folder))]
    return [
        Snippet(
            title="Load it in Python",
            code=(
                "import diffprune as dp\n\n"
                "model = make_model()  # as it was before training\n"
                f"small = dp.load_pruned(model, {folder!r})"
            ),
        ),
        Snippet(
            title="Export it to ONNX",
            code=typed("export", folder, "--to onnx"),
        ),
        Snippet(
            title="Measure it on this machine",
            code=typed("bench", folder),
        ),
    ]

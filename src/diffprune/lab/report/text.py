"""The sentences, cells and snippets of a report, from runs and their networks."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from diffprune._pruner import Shrinkage
from diffprune.lab.formatting import (
    duration,
    file_size,
    percent,
    short,
    spell_widths,
)
from diffprune.lab.report.networks import Network, ratio
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
        "File size": [_cell(n.file_size, dense.file_size, file_size) for n in everyone],
        "Units": [Cell(spell_widths(n.widths) or UNKNOWN) for n in everyone],
    }
    return Comparison(
        tuple(network.name for network in everyone),
        {title: tuple(cells) for title, cells in rows.items()},
    )


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
    worst = max(r.certificate.max_relative for r in removals if r.certificate)
    return Proof(
        run=run.name,
        summary=(
            f"{run.name}: {len(removals)} removals, each verified. Outputs before "
            f"and after differ by at most {worst:.1e}, relative to the largest output."
        ),
        table=Table(
            (
                "Step",
                "Units left",
                "Parameters",
                "Absolute difference",
                "Relative difference",
                "Arithmetic",
            ),
            tuple(map(_removal_row, removals)),
        ),
    )


def _removal_row(removal: Shrinkage) -> tuple[str, ...]:
    certificate = removal.certificate
    assert certificate is not None  # noqa: S101 - others were left out
    return (
        f"{removal.step:,}",
        spell_widths(removal.units),
        f"{removal.parameters:,}",
        f"{certificate.max_absolute:.1e}",
        f"{certificate.max_relative:.1e}",
        certificate.dtype,
    )


def snippets(run: Run) -> list[Snippet]:
    """How to load and export the network of a run, or how to finish the run."""
    folder = run.folder.as_posix()
    quoted = shlex.quote(folder)
    if run.outcome is None:
        return [Snippet(title="Finish the run", code=f"diffprune train {quoted}")]
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
            code=f"diffprune export {quoted} --to onnx",
        ),
        Snippet(
            title="Measure it on this machine",
            code=f"diffprune bench {quoted}",
        ),
    ]

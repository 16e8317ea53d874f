"""Table 1 with every system run here: what is published, and below it what came out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

from rich.table import Table

from diffprune.lab import Run
from diffprune.lab.formatting import architecture
from paper.comparison.method import Method
from paper.comparison.systems import ALL
from paper.models.lenet5 import DENSE, Widths
from paper.published import Published, lenet5_on_mnist
from paper.records import read_records
from paper.tables.layout import empty_table, mean_row

_SAME: Final = {
    "lenet5-dense": "dense",
    "lenet5-softmax": "diffprune",
    "lenet5-sigmoid": "diffprune-reg",
}
"""Runs of 200 epochs that have a table of their own, by the name they have here."""
_HEADINGS: Final = ("open gates", "connected", "weights", "MACs", "error %", "s")


@dataclass(frozen=True, kw_only=True)
class Result:
    """A network that a system left, here or in a publication.

    Attributes:
        system: What made it.
        where: Published, or here.
        open_gates: Units that were open in their gates, if there are gates.
        widths: Units of the network that is left.
        error: On the test set in the last epoch, in percent.
        epochs: Of the run.
        seed: Of the run.
        seconds: What the processor gave to training; zero where it is not known.
    """

    system: str
    where: str
    open_gates: str
    widths: Widths
    error: float
    epochs: int = 0
    seed: int = 0
    seconds: float = 0.0


def read_comparison(records: Path) -> list[Run]:
    """Read the short runs of every system, and our own of 200 epochs.

    Args:
        records: The folder of all records of the paper.

    Raises:
        ArgumentError: If there are none.
    """
    systems = read_records(records / "table1", "python -m paper table1 --run")
    ours = read_records(records / "lenet5", "python -m paper table lenet5 --run")
    return [*systems, *ours]


def results(runs: Sequence[Run]) -> dict[str, list[Result]]:
    """By the label of each system: what is published, then finished runs, long last."""
    published = {row.method: row for row in lenet5_on_mnist()}
    done = sorted(
        (run for run in runs if run.outcome is not None),
        key=lambda run: (run.recipe.epochs, run.recipe.seed),
    )
    return {method.label: [*_found(method, published, done)] for method in ALL}


def _found(
    method: Method, published: Mapping[str, Published], runs: Sequence[Run]
) -> Iterator[Result]:
    if method.published is not None:
        row = published[method.published]
        yield Result(
            system=method.label,
            where="published",
            open_gates="",
            widths=row.widths,
            error=row.error,
        )
    for run in runs:
        if _SAME.get(run.recipe.name, run.recipe.name) == method.recipe.name:
            yield _result(method, run)


def _result(method: Method, run: Run) -> Result:
    assert run.outcome is not None  # noqa: S101 - looked at above
    left = run.outcome.effective
    return Result(
        system=method.label,
        where="here",
        open_gates=architecture(run.outcome.raw),
        widths=Widths(*left.values()) if left else DENSE,
        error=run.epochs[-1].test_error,
        epochs=run.recipe.epochs,
        seed=run.recipe.seed,
        seconds=sum(epoch.processor_seconds for epoch in run.epochs),
    )


def comparison_table(runs: Sequence[Run]) -> Table:
    """Show a section for every system; runs in their last epoch, whatever its error."""
    title = "LeNet-5 on MNIST: every system of Table 1, published and run here"
    table = empty_table(title, _HEADINGS, _caption())
    for label, found in results(runs).items():
        if not any(result.where == "published" for result in found):
            table.add_row(label)
        for epochs, several in groupby(found, lambda result: result.epochs):
            same = list(several)
            for result in same:
                table.add_row(*_cells(result))
            errors = [result.error for result in same]
            for cells in mean_row(errors, empty=4, title=f"  mean, {epochs} epochs"):
                table.add_row(*cells)
        table.add_section()
    return table


def _cells(result: Result) -> tuple[str, ...]:
    is_here = result.where == "here"
    return (
        f"  seed {result.seed}, {result.epochs} epochs" if is_here else result.system,
        result.open_gates if is_here else str(result.widths),
        str(result.widths) if is_here else "",
        f"{result.widths.weights:,}",
        f"{result.widths.macs:,}",
        f"{result.error:.2f}" if is_here else f"{result.error}",
        f"{result.seconds:,.0f}" if result.seconds else "",
    )


def _caption() -> str:
    late = "; ".join(m.label for m in ALL if m.training and not m.shrinks)
    dense = "; ".join(m.label for m in ALL if m.starts_dense)
    lines = [
        "A row with a seed is a run here, in its last epoch; one without is published",
        "s: seconds of the processor, training alone",
        "In short runs gates learn faster, tenfold at most; those of DiffPrune do not",
        f"Cut in the end alone: {late}",
        f"Continued from the dense network of the seed: {dense}",
    ]
    notes = dict.fromkeys(m.note for m in ALL if m.note)
    return "\n".join([*lines, *(f"{_noted(note)}: {note}" for note in notes)])


def _noted(note: str) -> str:
    return "; ".join(method.label for method in ALL if method.note == note)

"""The paper's Table 1 next to our runs of it; trains nothing, draws no screen.

A *record* is a run folder without weights and without the open probability of every
unit in every epoch: small enough to be kept for good.
"""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.table import Table

from diffprune.errors import ArgumentError
from diffprune.experiment import records
from diffprune.experiment.builtin import table1_sigmoid, table1_softmax
from diffprune.experiment.recipe import Recipe
from diffprune.experiment.records import Run, read_run
from diffprune.experiment.view import architecture, short


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the paper: what it says, and how to get it."""

    method: str
    architecture: str
    error: float
    recipe: Callable[[int], Recipe]


TABLE1: Final = (
    Row(
        method="DiffPrune",
        architecture="11-30-496-309",
        error=0.6,
        recipe=table1_softmax,
    ),
    Row(
        method="DiffPrune reg",
        architecture="10-20-71-35",
        error=1.0,
        recipe=table1_sigmoid,
    ),
)


def folder_name(recipe: Recipe) -> str:
    """Where a run of a recipe is kept."""
    return f"{recipe.name}-seed{recipe.seed}"


def write_record(folder: Path, target: Path) -> None:
    """Keep what is worth keeping of a run, finished or not."""
    run = read_run(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name in (records.RECIPE, records.ENVIRONMENT, records.SUMMARY):
        if (folder / name).exists():
            (target / name).write_bytes((folder / name).read_bytes())
    epochs = [replace(epoch, prob_open={}).to_dict() for epoch in run.epochs]
    text = "".join(json.dumps(epoch) + "\n" for epoch in epochs)
    (target / records.METRICS).write_text(text, encoding="utf-8")
    removals = "".join(json.dumps(r.to_dict()) + "\n" for r in run.removals)
    (target / records.REMOVALS).write_text(removals, encoding="utf-8")


def read_records(folder: Path) -> list[Run]:
    """Read all records in a folder.

    Raises:
        ArgumentError: If there are none.
    """
    paths = sorted(folder.glob(f"*/{records.RECIPE}"))
    found = [run for path in paths if (run := read_run(path.parent)).epochs]
    if not found:
        raise ArgumentError(
            f"`{folder}` holds no records. Name another folder with `--results`, or "
            "type `diffprune reproduce lenet5 --run` to make some; that takes hours."
        )
    return found


def table1(runs: Sequence[Run]) -> Table:
    """Every run in the last epoch it has, under the paper's row."""
    title = "LeNet-5 on MNIST: the paper's rows, and our last epochs"
    table = Table(title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    for heading in ("open gates", "connected", "error %", "MACs", "epochs"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in TABLE1:
        table.add_row(row.method, row.architecture, "", f"{row.error}", "", "200")
        ours = [run for run in runs if run.recipe.name == row.recipe(0).name]
        for run in ours:
            table.add_row(*_cells(run))
        if len(ours) > 1:
            mean = statistics.mean(run.epochs[-1].test_error for run in ours)
            table.add_row("  mean", "", "", f"{mean:.2f}")
        table.add_section()
    return table


def _cells(run: Run) -> tuple[str, ...]:
    last, end = run.epochs[-1], run.outcome
    return (
        f"  seed {run.recipe.seed}",
        architecture(last.raw),
        architecture(last.effective if end is None else end.effective),
        f"{last.test_error:.2f}",
        short(last.macs if end is None else end.macs),
        f"{last.number}" if end else f"{last.number}/{run.recipe.epochs}",
    )

"""Table 1 of the paper next to our runs of it; trains nothing, reads no files."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.table import Table

from diffprune.lab.formatting import architecture, short
from diffprune.lab.runs.records import Epoch, Run
from diffprune.lab.training.recipe import Recipe
from paper.lenet5_tasks import table1_sigmoid, table1_sigmoid_kept, table1_softmax
from paper.models.counting import Widths


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the paper: what it says, and how to get it."""

    method: str
    widths: Widths
    error: float
    recipe: Callable[[int], Recipe]


TABLE1: Final = (
    Row(
        method="DiffPrune",
        widths=Widths(11, 30, 496, 309),
        error=0.6,
        recipe=table1_softmax,
    ),
    Row(
        method="DiffPrune reg",
        widths=Widths(10, 20, 71, 35),
        error=1.0,
        recipe=table1_sigmoid,
    ),
)


def table1(runs: Sequence[Run]) -> Table:
    """Every run in the last epoch it has, under the paper's row.

    The paper chose "a representative result" of 200 epochs. So ours stand there again,
    in the first epoch in which they are no larger than the paper's. Below, runs without
    live removal, and what the same seed with it had become in the same epoch: as
    accurate, and smaller; the caption says how long both took to get there.
    """
    title = "LeNet-5 on MNIST: the paper's rows, and our last epochs"
    pairs = list(_pairs(runs))
    caption = ["s: seconds of that epoch on the processor, where they were recorded"]
    caption += [_compared(kept, same) for kept, same in pairs if same is not None]
    table = Table(
        title=title, title_justify="left", caption_justify="left", pad_edge=False,
        caption="\n".join(caption),
    )  # fmt: skip
    table.add_column("", no_wrap=True)
    for heading in ("open gates", "connected", "error %", "MACs", "epochs", "s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in TABLE1:
        paper = row.widths
        table.add_row(
            row.method, str(paper), "", f"{row.error}", short(paper.macs), "200"
        )
        for cells in _ours(_named(runs, row.recipe), paper):
            table.add_row(*cells)
        table.add_section()
    for kept, removed in pairs:
        last = kept.epochs[-1]
        table.add_row("reg, all kept")
        table.add_row(*_cells(kept, last, last.macs))
        if removed is not None:
            same = removed.epochs[last.number - 1]
            table.add_row(*_cells(removed, same, same.macs, "removed"))
    return table


def _named(runs: Sequence[Run], recipe: Callable[[int], Recipe]) -> list[Run]:
    return [run for run in runs if run.recipe.name == recipe(0).name]


def _ours(runs: Sequence[Run], paper: Widths) -> Iterator[tuple[str, ...]]:
    for run in runs:
        end = run.outcome
        yield _cells(run, run.epochs[-1], end.macs if end else run.epochs[-1].macs)
    yield from _mean([run.epochs[-1] for run in runs])
    early = [(run, epoch) for run in runs if (epoch := _as_small(run, paper))]
    if early:
        yield ("ours, as small",)
    for run, epoch in early:
        yield _cells(run, epoch, epoch.macs)
    yield from _mean([epoch for _, epoch in early])


def _as_small(run: Run, paper: Widths) -> Epoch | None:
    """The first epoch with no more parameters and multiply-adds; chosen by no error."""
    sizes = ((epoch, epoch.parameters, epoch.macs) for epoch in run.epochs)
    found = (e for e, p, macs in sizes if p <= paper.parameters and macs <= paper.macs)
    return next(found, None)


def _mean(epochs: Sequence[Epoch]) -> Iterator[tuple[str, ...]]:
    if len(epochs) > 1:
        mean = statistics.mean(epoch.test_error for epoch in epochs)
        yield "  mean", "", "", f"{mean:.2f}"


def _pairs(runs: Sequence[Run]) -> Iterator[tuple[Run, Run | None]]:
    """Runs that keep all units, each with that of its seed which came as far."""
    removed = {run.recipe.seed: run for run in _named(runs, table1_sigmoid)}
    for kept in _named(runs, table1_sigmoid_kept):
        same = removed.get(kept.recipe.seed)
        came_as_far = same is not None and len(same.epochs) >= len(kept.epochs)
        yield kept, same if came_as_far else None


def _compared(kept: Run, removed: Run) -> str:
    epochs, seed = len(kept.epochs), kept.recipe.seed
    all_kept, with_removal = (
        f"{sum(epoch.processor_seconds for epoch in run.epochs[:epochs]):,.0f} s"
        for run in (kept, removed)
    )
    return f"reg, seed {seed}: {all_kept} in all, and {with_removal} with live removal"


def _cells(run: Run, epoch: Epoch, macs: int, note: str = "") -> tuple[str, ...]:
    is_last = run.outcome is not None and epoch is run.epochs[-1]
    effective = epoch.effective
    if run.outcome is not None and is_last:
        effective = run.outcome.effective
    return (
        f"  {note or f'seed {run.recipe.seed}'}",
        architecture(epoch.raw),
        architecture(effective),
        f"{epoch.test_error:.2f}",
        short(macs),
        f"{epoch.number}" if is_last else f"{epoch.number}/{run.recipe.epochs}",
        f"{epoch.processor_seconds:.0f}" if epoch.processor_seconds else "",
    )

"""Table 1 of the paper next to our runs of it: from runs to a table for a terminal."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.table import Table

from diffprune.lab import Epoch, Recipe, Run
from diffprune.lab.formatting import architecture, short
from paper.lenet5_recipes import (
    PAPERS_SIGMOID,
    table1_dense,
    table1_sigmoid,
    table1_sigmoid_budget,
    table1_sigmoid_fading,
    table1_sigmoid_held,
    table1_sigmoid_kept,
    table1_sigmoid_taught,
    table1_softmax,
    table1_softmax_held,
    table1_softmax_taught,
    table1_teacher,
)
from paper.models.lenet5 import DENSE, Widths
from paper.tables.layout import empty_table, mean_row


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the paper: what it says, and how to get it."""

    method: str
    widths: Widths
    error: float
    recipe: Callable[[int], Recipe]


_HEADINGS: Final = ("open gates", "connected", "error %", "MACs", "epochs", "s")
TABLE1: Final = (
    Row(
        method="DiffPrune",
        widths=Widths(11, 30, 496, 309),
        error=0.6,
        recipe=table1_softmax,
    ),
    Row(
        method="DiffPrune reg",
        widths=PAPERS_SIGMOID,
        error=1.0,
        recipe=table1_sigmoid,
    ),
)


REMEDIES: Final = {
    "gates held": table1_softmax_held,
    "gates held, taught": table1_softmax_taught,
    "reg, strengths fade": table1_sigmoid_fading,
    "reg, gates held": table1_sigmoid_held,
    "reg, held, taught": table1_sigmoid_taught,
    "reg, budget": table1_sigmoid_budget,
}
"""By what the table calls them: runs in which closing comes to an end."""


def lenet5_table(runs: Sequence[Run]) -> Table:
    """Every run in the last epoch it has, under the paper's row.

    The paper chose "a representative result" of 200 epochs. So ours stand there again,
    in the first epoch in which they are no larger than the paper's. Above, the network
    without gates, and the one that teaches others. Below, runs in which closing ends;
    then runs without live removal, and what the same seed with it had become in the
    same epoch: as accurate, and smaller. The caption says how long both took to get
    there.
    """
    pairs = list(_pairs(runs))
    caption = ["s: seconds of that epoch on the processor, where they were recorded"]
    caption += [_compared(kept, same) for kept, same in pairs if same is not None]
    title = "LeNet-5 on MNIST: the paper's rows, and our last epochs"
    table = empty_table(title, _HEADINGS, "\n".join(caption))
    rows = (_ours(_named(runs, row.recipe), row) for row in TABLE1)
    remedies = (_under(name, _named(runs, r)) for name, r in REMEDIES.items())
    dense = _dense("dense", _named(runs, table1_dense))
    teacher = _dense("teacher, dense", _named(runs, table1_teacher))
    for section in (dense, teacher, *rows, *remedies, _kept(pairs)):
        for cells in section:
            table.add_row(*cells)
        table.add_section()
    return table


def _dense(title: str, runs: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    if runs:
        yield title, str(DENSE), "", "", short(DENSE.macs)
    for run in runs:
        yield _cells(run, run.epochs[-1], DENSE.macs)
    yield from _mean([run.epochs[-1] for run in runs])


def _under(title: str, runs: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    if runs:
        yield (title,)
    yield from _last_epochs(runs)


def _last_epochs(runs: Sequence[Run]) -> Iterator[tuple[str, ...]]:
    for run in runs:
        end = run.outcome or run.epochs[-1]
        yield _cells(run, run.epochs[-1], end.macs)
    yield from _mean([run.epochs[-1] for run in runs])


def _kept(pairs: Sequence[tuple[Run, Run | None]]) -> Iterator[tuple[str, ...]]:
    for kept, removed in pairs:
        last = kept.epochs[-1]
        yield ("reg, all kept",)
        yield _cells(kept, last, last.macs)
        if removed is not None:
            same = removed.epochs[last.number - 1]
            yield _cells(removed, same, same.macs, "removed")


def _named(runs: Sequence[Run], recipe: Callable[[int], Recipe]) -> list[Run]:
    return [run for run in runs if run.recipe.name == recipe(0).name]


def _ours(runs: Sequence[Run], row: Row) -> Iterator[tuple[str, ...]]:
    yield row.method, str(row.widths), "", f"{row.error}", short(row.widths.macs), "200"
    yield from _last_epochs(runs)
    early = [(run, epoch) for run in runs if (epoch := _as_small(run, row.widths))]
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
    errors = [epoch.test_error for epoch in epochs]
    return mean_row(errors, empty=2, title="  mean")


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

"""What a step of the small wide ResNet takes, epoch by epoch as it shrinks.

`python -m benchmarks.wrn_epochs` reads the records of its runs, builds the network that
each epoch left, and times a training step of it in turns with the original's. Runs time
themselves too, but with whatever else the machine did in those hours. The figures are
kept in results/wrn/epochs.json.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from diffprune.lab.runs.records import Epoch, Run
from paper.reproduce import read_records

from ._records import write_results
from .wrn_step import full, measure, narrow

RECORDS = Path(__file__).parent.parent / "results" / "wrn"
DEPTH, WIDEN = 10, 1


@dataclass(frozen=True, kw_only=True)
class Result:
    """The network of an epoch.

    Attributes:
        run: The name of its recipe.
        epoch: After so many.
        macs: Of a forward pass for one image.
        seconds: Of a training step, on the processor, one thread.
        original: Seconds of the original's, in the same minute.
    """

    run: str
    epoch: int
    macs: int
    seconds: float
    original: float


def time_epoch(run: Run, epoch: Epoch) -> Result:
    """Time the network with as many units as are connected at the end of an epoch."""
    size = (DEPTH, WIDEN, run.recipe.batch_size)
    widths = list(epoch.effective.values())
    whole, left = measure([full(*size), narrow("left", widths, *size)])
    return Result(
        run=run.recipe.name,
        epoch=epoch.number,
        macs=left.macs,
        seconds=left.median,
        original=whole.median,
    )


def show(results: Sequence[Result]) -> Table:
    """A row for every epoch."""
    table = Table("run", "epoch")
    for name in ("MACs per image", "ms per step", "original", "share"):
        table.add_column(name, justify="right")
    for r in results:
        table.add_row(
            r.run,
            str(r.epoch),
            f"{r.macs:,}",
            f"{1e3 * r.seconds:.0f}",
            f"{1e3 * r.original:.0f}",
            f"{r.seconds / r.original:.1%}",
        )
    return table


def _epochs() -> Iterator[tuple[Run, Epoch]]:
    for run in read_records(RECORDS):
        if run.recipe.strength is not None:
            for epoch in run.epochs:
                yield run, epoch


def main() -> None:
    """Measure, write the record, print the table."""
    torch.manual_seed(0)
    console = Console()
    found = track(list(_epochs()), "timing", console=console)
    results = [time_epoch(run, epoch) for run, epoch in found]
    write_results(RECORDS / "epochs.json", "python -m benchmarks.wrn_epochs", results)
    console.print(show(results))


if __name__ == "__main__":
    main()

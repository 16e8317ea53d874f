"""`diffprune bench`: what the networks of a run cost on this machine."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from diffprune.lab.cli.options import AsJson, RunFolder, TaskOfRun, Trust, check_runs
from diffprune.lab.cli.output import said_plainly, say, show, show_json, with_examples

if TYPE_CHECKING:
    from diffprune._costs.benchmark import Measured


@with_examples(
    "diffprune bench runs/mine",
    "diffprune bench runs/mine --batch 64 --compile",
    "diffprune bench runs/mine --json | jq '.[] | [.network, .engine, .ratio]'",
)
def bench(
    run: RunFolder,
    *,
    batch: Annotated[
        int, typer.Option(min=1, metavar="N", help="Examples per forward pass.")
    ] = 1,
    rounds: Annotated[
        int,
        typer.Option(min=2, metavar="N", help="How often each network is measured."),
    ] = 31,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compile", metavar="", help="Measure `torch.compile` too; starts slowly."
        ),
    ] = False,
    onnx: Annotated[
        bool, typer.Option(metavar="", help="Measure ONNX Runtime, if it is installed.")
    ] = True,
    task: TaskOfRun = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Measure speed, memory and size of a run's networks: dense, gated and small.

    All take turns on one thread of the processor, so the ratios hold on a busy machine.
    *Speed* is that of the dense network in PyTorch, times so much: more is faster.
    """
    with said_plainly():
        check_runs(run)
    say("Each network is run in turn; this takes some seconds.")
    from diffprune.lab import bench as measuring  # noqa: PLC0415 - imports torch

    with said_plainly():
        found = measuring.bench(
            run,
            task=task,
            trust=trust,
            batch=batch,
            rounds=rounds,
            compiled=compiled,
            onnx=onnx,
        )
    if as_json:
        show_json([measured.to_dict() for measured in found])
    else:
        show(_table(found))


def _table(found: Sequence["Measured"]) -> Table:
    from diffprune._costs.benchmark import HEADER  # noqa: PLC0415 - imports torch

    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(HEADER):
        table.add_column(name, justify="right" if number > 1 else "left", no_wrap=True)
    for measured in found:
        table.add_row(measured.network, *measured.cells())
    return table

"""`diffprune train`: one run from the command line."""

from pathlib import Path
from typing import Annotated

import typer

from diffprune.lab.cli.options import AsJson
from diffprune.lab.cli.output import said_plainly, say, show, show_json, with_examples


@with_examples(
    "diffprune train digits --epochs 5",
    "diffprune train mine.py:my_task --strength 1e-4 --out runs/mine",
    "diffprune train mine.py:my_task --budget macs=0.3",
    "diffprune train mine.py:my_task --dense  # without gates, to compare",
    "diffprune train runs/mine  # go on after an interruption",
)
def train(  # noqa: PLR0913 - options of a command
    task: Annotated[
        str,
        typer.Argument(
            help="`file.py:function`, a built-in task such as `digits`, or the "
            "folder of a run to continue."
        ),
    ],
    *,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Numbers to start from: `file.py:function`, a built-in task, or a "
            "run whose recipe to repeat."
        ),
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples per step.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    gate_lr: Annotated[
        float | None, typer.Option(help="That of the gates; by default the same.")
    ] = None,
    strength: Annotated[
        float | None, typer.Option(help="How hard open units are pushed to close.")
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COST=AMOUNT",
            help="What may be left, instead of a strength: `macs=0.3`, `params=1e5`, "
            "`size=200kB`, `memory=0.5`, `latency=5ms`; a number up to 1 is a part.",
        ),
    ] = None,
    dense: Annotated[
        bool, typer.Option("--dense", help="Train without gates, to compare with.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(help="Equal seeds give equal results; by default 0.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; by default in `runs`.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where to train.")] = "cpu",
    tensorboard: Annotated[
        bool,
        typer.Option("--tensorboard", help="Write events, too, into the run folder."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model while it shrinks; interrupted, the same command continues.

    A task is a function from a recipe to a `diffprune.lab.Task`: a model, data
    and a loss. All numbers have defaults that work.
    """
    from diffprune.lab.cli import run_jobs as runs  # noqa: PLC0415 - imports torch
    from diffprune.lab.cli.budget_option import parse_budget  # noqa: PLC0415

    asked = {
        "epochs": epochs, "batch_size": batch_size, "lr": lr, "gate_lr": gate_lr,
        "strength": strength, "seed": seed,
    }  # fmt: skip
    with said_plainly():
        limits = {"budget": parse_budget(budget) if budget else None}
        given = {n: value for n, value in (asked | limits).items() if value is not None}
        job = runs.find_job(task, recipe, given, out=out, dense=dense)
        run = runs.run_job(job, device, with_tensorboard=tensorboard)
    if as_json:
        show_json(run.to_dict())
    else:
        show(runs.result(run))
        say(runs.advice(run))

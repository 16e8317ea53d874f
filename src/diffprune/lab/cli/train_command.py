"""`diffprune train`: one run from the command line."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any

import typer

from diffprune.errors import ArgumentError
from diffprune.lab import defaults
from diffprune.lab.cli.options import AsJson, Trust, check_spec, parse_budget
from diffprune.lab.cli.output import said_plainly, say, show, show_json, with_examples


@with_examples(
    "diffprune train digits --epochs 5",
    "diffprune train mine.py:my_task --budget macs=0.3 --out runs/mine",
    "diffprune train mine.py:my_task --budget latency=5ms --round-to 8",
    "diffprune train mine.py:my_task --strength 1e-4",
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
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help=f"Passes over the data; by default {defaults.EPOCHS}.",
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help=f"Examples per step; by default {defaults.BATCH_SIZE}.",
        ),
    ] = None,
    lr: Annotated[
        float | None,
        typer.Option(help=f"Learning rate; by default {defaults.LR:g}."),
    ] = None,
    gate_lr: Annotated[
        float | None, typer.Option(help="That of the gates; by default that of --lr.")
    ] = None,
    strength: Annotated[
        float | None,
        typer.Option(
            help="How hard open units are pushed to close, instead of a budget."
        ),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COST=AMOUNT",
            help="What may be left: `macs=0.3`, `parameters=1e5`, `size=200kB`, "
            "`memory=0.5`, `latency=5ms`; a number up to 1 is a part. By default "
            f"`macs={defaults.MACS:g}`.",
        ),
    ] = None,
    freeze: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Layers to leave as they are."),
    ] = None,
    round_to: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Cut widths to multiples of this."),
    ] = None,
    dense: Annotated[
        bool,
        typer.Option(
            "--dense", metavar="", help="Train without gates, to compare with."
        ),
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
        typer.Option(
            "--tensorboard", metavar="", help="Write events, too, into the run folder."
        ),
    ] = False,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Train a model while it shrinks; interrupted, the same command continues.

    A task is a function from a recipe to a `diffprune.lab.Task`: a model, data and a
    loss. Built-in tasks and recipes have defaults of their own.
    """
    asked: dict[str, Any] = {
        "epochs": epochs, "batch_size": batch_size, "lr": lr, "gate_lr": gate_lr,
        "strength": strength, "seed": seed,
    }  # fmt: skip
    options = {"freeze": freeze, "round_to": round_to}
    with said_plainly():
        check_spec(task)
        asked["budget"] = parse_budget(budget) if budget else None
        asked["pruner"] = {n: v for n, v in options.items() if v is not None} or None
        given = {n: value for n, value in asked.items() if value is not None}
        _check_pressure(given, dense=dense)
        from diffprune.lab.cli import run_jobs as runs  # noqa: PLC0415 - imports torch

        job = runs.find_job(task, recipe, given, out=out, dense=dense, trust=trust)
        run = runs.run_job(job, device, with_tensorboard=tensorboard)
    if as_json:
        show_json(run.to_dict())
    else:
        show(runs.result(run))
        say(runs.advice(run))


def _check_pressure(given: Collection[str], *, dense: bool) -> None:
    """Refuse options that would leave each other without effect."""
    asked = [name for name in ("strength", "budget") if name in given]
    if dense and asked:
        raise ArgumentError(f"`--dense` has no gates, so it takes no `--{asked[0]}`.")
    if len(asked) > 1:
        raise ArgumentError(
            "`--budget` finds its own strength; leave out `--strength`, or `--budget`."
        )

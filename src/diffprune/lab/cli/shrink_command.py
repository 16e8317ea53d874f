"""`diffprune shrink`: a smaller network from the command line, without training."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from diffprune.lab.cli.options import AsJson, Trust, check_spec, parse_budget
from diffprune.lab.cli.output import said_plainly, say, show, show_json, with_examples


@with_examples(
    "diffprune shrink mine.py:my_task --budget macs=0.3",
    "diffprune shrink mine.py:my_task --weights trained.pt --budget latency=5ms",
    "diffprune shrink runs/mine-dense --budget macs=0.3,size=200kB --out small",
)
def shrink(  # noqa: PLR0913 - options of a command
    task: Annotated[
        str,
        typer.Argument(
            help="`file.py:function`, a task whose model is trained; or the folder of "
            "a finished run."
        ),
    ],
    *,
    budget: Annotated[
        list[str],
        typer.Option(
            metavar="COST=AMOUNT",
            help="What may be left: `macs=0.3`, `parameters=1e5`, `size=200kB`, "
            "`memory=0.5`, `latency=5ms`; a number up to 1 is a part.",
        ),
    ],
    weights: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="The model's `state_dict`, if the task does not load it: a file of "
            "`torch.save` or safetensors.",
        ),
    ] = None,
    refit: Annotated[
        bool,
        typer.Option(
            metavar="", help="Fit what is left to what the whole network computes."
        ),
    ] = True,
    norms: Annotated[
        Literal["narrow", "exact"] | None,
        typer.Option(
            help="Cut widths that norms run over, such as the stream of a transformer "
            "(usual with a refit), or leave them whole."
        ),
    ] = None,
    freeze: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Layers to leave as they are."),
    ] = None,
    round_to: Annotated[
        int, typer.Option(min=1, metavar="N", help="Cut widths to multiples of this.")
    ] = 1,
    batch_size: Annotated[
        int, typer.Option(min=1, metavar="N", help="Examples per batch.")
    ] = 64,
    seed: Annotated[
        int, typer.Option(help="Equal seeds take equal training examples.")
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to; by default in `runs`.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where to compute.")] = "cpu",
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Make a trained network smaller without training it.

    A few hundred training examples say which units matter; the others are removed, and
    the layers that are left are fitted to what they returned before. The task is the
    same as for `diffprune train`, with a model that is trained already.
    """
    with said_plainly():
        check_spec(task)
        limits = parse_budget(budget)
        from diffprune.lab.cli import shrink_jobs as jobs  # noqa: PLC0415 - imports torch

        trained = jobs.find_trained(
            task, weights, seed=seed, batch_size=batch_size, trust=trust
        )
        outcome = jobs.shrink_job(
            trained,
            jobs.make_budget(limits),
            out or Path("runs") / f"{trained.name}-small",
            device,
            refit=refit,
            norms=norms,
            round_to=round_to,
            freeze=freeze or (),
        )
    if as_json:
        show_json(outcome.to_dict())
        return
    groups, costs = jobs.tables(outcome)
    show(groups, "", costs, f"Written to {outcome.folder}.")
    say(f'Use it:  diffprune.load_pruned(YourModel(), "{outcome.folder}")')

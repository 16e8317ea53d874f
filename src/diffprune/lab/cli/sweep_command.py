"""`diffprune sweep`: a run for each of several values, and their front."""

from pathlib import Path
from typing import Annotated

import typer

from diffprune.lab.cli.options import AsJson, check_spec
from diffprune.lab.cli.output import said_plainly, say, show, show_json, with_examples


@with_examples(
    "diffprune sweep digits --vary macs=0.5,0.3,0.1 --out sweeps/digits",
    "diffprune sweep mine.py:my_task --vary strength=1e-5,1e-4 --workers 2",
    "diffprune sweep mine.py:my_task --vary latency=5ms,2ms --figure front.svg",
)
def sweep(
    task: Annotated[
        str,
        typer.Argument(help="`file.py:function`, or a built-in task."),
    ],
    *,
    vary: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=VALUE,...",
            help="A run for each value: of a budget (`macs`, `parameters`, `memory`, "
            "`size`, `latency`) or of the recipe (`strength`, `lr`, ...). Repeat it "
            "to vary something else, too.",
        ),
    ],
    epochs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Passes over the data.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder of the sweep; share it to share the work.")
    ] = Path("sweeps"),
    workers: Annotated[
        int, typer.Option(min=1, metavar="N", help="Processes at a time.")
    ] = 1,
    device: Annotated[str, typer.Option(help="Where to train.")] = "cpu",
    figure: Annotated[
        Path | None, typer.Option(help="Draw the front: an SVG, PNG or HTML file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a task once for each value, and show error against cost.

    Interrupted, the same command continues. Several machines that share the folder can
    run it at the same time.
    """
    with said_plainly():
        check_spec(task)
    from dataclasses import replace  # noqa: PLC0415 - beside what needs it

    from diffprune.lab.runs.tasks import load_task  # noqa: PLC0415 - imports torch
    from diffprune.lab.sweeps import sweep as run_sweep  # noqa: PLC0415
    from diffprune.lab.sweeps.points import read_values  # noqa: PLC0415

    with said_plainly():
        _, make_recipe = load_task(task)
        given = {} if epochs is None else {"epochs": epochs}
        recipe = replace(make_recipe(0), **given)
        front = run_sweep(
            task,
            read_values(vary),
            out=out,
            recipe=recipe,
            workers=workers,
            device=device,
        )
        if figure is not None:
            front.figure(figure)
    if as_json:
        show_json(front.to_dict())
    else:
        show(front.table())
        say(f"Next:  diffprune compare {out}/*/  (or report)")

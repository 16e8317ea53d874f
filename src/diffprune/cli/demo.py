"""`diffprune demo`: a network shrinks before one's eyes; the work is in `demo`."""

from pathlib import Path
from typing import Annotated, Final

import typer

from diffprune.cli.options import AsJson
from diffprune.cli.output import examples, said_plainly, say, screen, show, show_json

EXAMPLES: Final = examples(
    "diffprune demo",
    "diffprune demo --seed 1 --out runs/other",
    "diffprune demo --json 2>/dev/null | jq .pruned.macs",
)


def demo(
    *,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal results.")] = 0,
    epochs: Annotated[int, typer.Option(help="Passes over the training digits.")] = 20,
    out: Annotated[
        Path, typer.Option(help="Directory for the results; earlier ones are replaced.")
    ] = Path("runs/demo"),
    as_json: AsJson = False,
) -> None:
    """Train LeNet-5 on handwritten digits, dense and gated, and compare the two.

    Takes less than a minute on two cores and downloads nothing.
    """
    say("LeNet-5 on handwritten digits: first dense, then with gates that close.")
    from diffprune.demo import run, view  # noqa: PLC0415 - imports torch
    from diffprune.experiment.view import progress_bars  # noqa: PLC0415

    bars = progress_bars(screen(), ["dense", "pruned"], epochs=epochs)
    with said_plainly(), bars as on_epoch:
        summary = run.run_demo(out, seed=seed, epochs=epochs, on_epoch=on_epoch)
    if as_json:
        show_json(summary.to_dict())
    else:
        show(view.comparison(summary), view.proof(summary), view.whereabouts(summary))

"""`diffprune demo`: a network shrinks before one's eyes."""

import time
from pathlib import Path
from typing import Annotated

import typer

from diffprune.lab.cli.options import AsJson
from diffprune.lab.cli.output import (
    said_plainly,
    say,
    screen,
    show,
    show_json,
    with_examples,
)


@with_examples(
    "diffprune demo",
    "diffprune demo --seed 1 --out runs/other",
    "diffprune demo --json 2>/dev/null | jq .pruned.macs",
)
def demo(
    *,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal results.")] = 0,
    epochs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Passes over the training digits.")
    ] = 20,
    out: Annotated[
        Path, typer.Option(help="Directory for the results; earlier ones are replaced.")
    ] = Path("runs/demo"),
    as_json: AsJson = False,
) -> None:
    """Train LeNet-5 on handwritten digits, dense and down to a tenth, and compare.

    The small network is saved, exported to ONNX and put on a page to look at. Takes
    less than a minute on two cores and downloads nothing.
    """
    start = time.perf_counter()
    say(
        "LeNet-5 on handwritten digits: first dense, then down to a tenth of the "
        "multiply-adds."
    )
    from diffprune.lab.demo import deliver, train_both  # noqa: PLC0415 - imports torch
    from diffprune.lab.training.progress_bar import progress_bars  # noqa: PLC0415

    bars = progress_bars(screen(), ["dense", "pruned"], epochs=epochs)
    with said_plainly():
        with bars as on_epoch:
            train_both(out, seed=seed, epochs=epochs, on_epoch=on_epoch)
        say("Saving the small network, exporting it, writing the report.")
        found = deliver(out, seconds=lambda: time.perf_counter() - start)
    if as_json:
        show_json(found.to_dict())
    else:
        show(*found.view())

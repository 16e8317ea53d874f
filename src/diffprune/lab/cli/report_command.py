"""`diffprune report`: runs as one HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from diffprune.lab.cli.options import AsJson, RunFolders, Trust, check_runs
from diffprune.lab.cli.output import said_plainly, show, show_json, with_examples


@with_examples(
    "diffprune report runs/mine",
    "diffprune report runs/dense runs/mine --out comparison.html",
)
def report(
    runs: RunFolders,
    *,
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
    measure: Annotated[
        bool,
        typer.Option(
            metavar="",
            help="Rebuild the networks and time them here. That runs the code of their "
            "tasks.",
        ),
    ] = True,
    trust: Trust = False,
    as_json: AsJson = False,
) -> None:
    """Write runs as one HTML page that needs nothing else: figures, tables, proofs.

    With a dense run among several, the others are compared with it.
    """
    with said_plainly():
        check_runs(*runs)
    from diffprune.lab.report import write_report  # noqa: PLC0415 - imports torch

    with said_plainly():
        path = write_report(runs, out, measure=measure, trust=trust)
    if as_json:
        show_json({"path": str(path), "bytes": path.stat().st_size})
    else:
        show(f"Written to {path}; open it in a browser.")

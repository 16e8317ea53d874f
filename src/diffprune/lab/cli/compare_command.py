"""`diffprune compare`: runs side by side; trains and draws nothing."""

from typing import Final

from diffprune.lab.cli.options import AsJson, RunFolders
from diffprune.lab.cli.output import examples, said_plainly, show, show_json

EXAMPLES: Final = examples(
    "diffprune compare runs/dense runs/mine runs/stronger",
    "diffprune compare runs/* --json | jq '.[] | [.folder, .test_error, .macs]'",
)


def compare(runs: RunFolders, *, as_json: AsJson = False) -> None:
    """Show runs side by side: how their recipes differ, and what came out.

    Shares are of the first run; an unfinished run shows its last epoch. *Worst removal*
    is how much any removal changed an output, relative to the largest.
    """
    from diffprune.lab.cli.standing import Standing, side_by_side  # noqa: PLC0415 - imports torch

    with said_plainly():
        standings = [Standing.of(folder) for folder in runs]
    if as_json:
        show_json([standing.to_dict() for standing in standings])
    else:
        show(side_by_side(standings))

"""`diffprune compare`: runs side by side, from their records."""

from diffprune.lab.cli.options import AsJson, RunFolders, check_runs
from diffprune.lab.cli.output import said_plainly, show, show_json, with_examples


@with_examples(
    "diffprune compare runs/dense runs/mine runs/stronger",
    "diffprune compare runs/* --json | jq '.[] | [.folder, .test_error, .macs]'",
)
def compare(runs: RunFolders, *, as_json: AsJson = False) -> None:
    """Show runs side by side: how their recipes differ, and what came out.

    Shares are of the first run; an unfinished run shows its last epoch. *Worst removal*
    is how much any removal changed an output, relative to the largest.
    """
    with said_plainly():
        check_runs(*runs)
    from diffprune.lab.runs.compare import side_by_side  # noqa: PLC0415 - imports torch
    from diffprune.lab.runs.records import read_runs  # noqa: PLC0415

    with said_plainly():
        found = read_runs(runs)
    if as_json:
        show_json([run.to_dict() for run in found])
    else:
        show(side_by_side(found))

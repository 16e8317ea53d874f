"""The demo on a terminal: a table, a certificate, a list of files; computes nothing."""

from rich.table import Table

from diffprune.demo.summary import Summary, effective, outcome, raw
from diffprune.experiment.records import Run


def comparison(summary: Summary) -> Table:
    """Return the dense network next to what is left of the pruned one."""
    dense, pruned = summary.dense, summary.pruned
    before, after = outcome(dense), outcome(pruned)
    table = Table(title="LeNet-5 on 300 test digits", title_justify="left")
    table.add_column("")
    for name in ("dense", "pruned", "remaining"):
        table.add_column(name, justify="right")
    table.add_row("open gates", str(raw(dense)), str(raw(pruned)))
    table.add_row("connected units", str(effective(dense)), str(effective(pruned)))
    table.add_row("parameters", *_shrinkage(before.parameters, after.parameters))
    table.add_row("MACs per image", *_shrinkage(before.macs, after.macs))
    table.add_row("seconds per epoch", _pace(dense), _pace(pruned))
    table.add_row(
        "test error", f"{before.test_error:.2f} %", f"{after.test_error:.2f} %"
    )
    return table


def proof(summary: Summary) -> str:
    """Say how well the removals kept what the network computes."""
    count, worst = len(summary.pruned.removals), summary.certificate()
    if worst is None:
        return "Nothing was removed: train for longer, with `--epochs`."
    return f"{count} removals, each verified: {worst}"


def whereabouts(summary: Summary) -> str:
    """Say which files were written, where, and how long it all took."""
    names = ", ".join(path.name for path in summary.files)
    out = summary.files[0].parent
    return f"{summary.seconds:.0f} seconds. Written to {out}: {names}"


def _pace(run: Run) -> str:
    return f"{run.epochs[0].seconds:.2f} -> {run.epochs[-1].seconds:.2f}"


def _shrinkage(before: int, after: int) -> tuple[str, str, str]:
    return f"{before:,}", f"{after:,}", f"{100 * after / before:.1f} %"

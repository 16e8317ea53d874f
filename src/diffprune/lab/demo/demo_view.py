"""The demo on a terminal: a table, a certificate, a list of files; computes nothing."""

from rich.console import Group
from rich.table import Table

from diffprune.lab.demo.demo_deliver import EXPORTED, REPORT, SAVED
from diffprune.lab.demo.demo_files import METRICS, SUMMARY
from diffprune.lab.demo.demo_summary import Summary, effective, outcome, raw
from diffprune.lab.runs.records import Run

_USES = {
    SAVED: "the small network, for `diffprune.load_pruned`",
    EXPORTED: "the same for ONNX Runtime",
    REPORT: "all of this on a page, for a browser",
    METRICS: "every epoch, one per line",
    SUMMARY: "the numbers above",
}


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


def whereabouts(summary: Summary) -> Group:
    """Say which files were written, where, and how long it all took."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for path in summary.files:
        table.add_row(f"  {path.name}", _USES.get(path.name, ""))
    for reason in summary.missing:
        table.add_row("  left out", reason.replace("\n", " "))
    out = summary.files[0].parent
    return Group(f"{summary.seconds:.0f} seconds. Written to {out}:", table)


def _pace(run: Run) -> str:
    return f"{run.epochs[0].seconds:.2f} -> {run.epochs[-1].seconds:.2f}"


def _shrinkage(before: int, after: int) -> tuple[str, str, str]:
    return f"{before:,}", f"{after:,}", f"{100 * after / before:.1f} %"

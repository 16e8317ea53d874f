"""The demo on a terminal: a bar per network, then a table; computes nothing."""

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column, Table

from diffprune.demo.run import OnEpoch
from diffprune.demo.summary import Summary
from diffprune.demo.training import Epoch


@contextmanager
def progress_bars(console: Console, *, epochs: int) -> Generator[OnEpoch, None, None]:
    """Show a bar for each network with its loss, its error and what is left of it.

    A bar appears with the first news of its network: none if there never is any.
    """
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        MofNCompleteColumn(),
        TextColumn("{task.fields[news]}", table_column=Column(no_wrap=True)),
        console=console,
        expand=True,
    )
    tasks = {
        name: progress.add_task(f"{name:<6}", total=epochs, visible=False, news="")
        for name in ("dense", "pruned")
    }
    with progress:
        yield lambda name, epoch: progress.update(
            tasks[name], completed=epoch.number, news=_news(epoch), visible=True
        )


def comparison(summary: Summary) -> Table:
    """Return the dense network next to what is left of the pruned one."""
    dense, pruned = summary.dense, summary.pruned
    table = Table(title="LeNet-5 on 300 test digits", title_justify="left")
    table.add_column("")
    for name in ("dense", "pruned", "remaining"):
        table.add_column(name, justify="right")
    before, after = dense.final.effective, pruned.final.effective
    table.add_row("open gates", str(dense.final.raw), str(pruned.final.raw))
    table.add_row("connected units", str(before), str(after))
    table.add_row("parameters", *_shrinkage(before.parameters, after.parameters))
    table.add_row("MACs per image", *_shrinkage(before.macs, after.macs))
    table.add_row(
        "test error", f"{dense.test_error:.2f} %", f"{pruned.test_error:.2f} %"
    )
    return table


def whereabouts(summary: Summary) -> str:
    """Say which files were written, where, and how long it all took."""
    names = ", ".join(path.name for path in summary.files)
    out = summary.files[0].parent
    return f"{summary.seconds:.0f} seconds. Written to {out}: {names}"


def _news(epoch: Epoch) -> str:
    """One line of fixed width, so that the bars do not jump."""
    return (
        f"loss {epoch.loss:.3f}  error {epoch.validation_error:5.2f} %  "
        f"{epoch.effective!s:<13}"
    )


def _shrinkage(before: int, after: int) -> tuple[str, str, str]:
    return f"{before:,}", f"{after:,}", f"{100 * after / before:.1f} %"

"""Show runs on a terminal while they last: a bar each, with the latest numbers."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from diffprune.lab.formatting import short, spell_widths
from diffprune.lab.runs.records import Epoch
from diffprune.lab.training.loop import OnEpoch

_WIDTH: Final = len("2,400 in 24 gates")
"""Of the column of units, so that bars do not jump."""


@contextmanager
def progress_bars(
    console: Console, names: Sequence[str], *, epochs: int
) -> Generator[Mapping[str, OnEpoch], None, None]:
    """Show a bar for each run: loss, error, what is left of the model, time left.

    A bar appears with the first news of its run: none if there never is any.

    Yields:
        For each run what to call after its epochs.
    """
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        MofNCompleteColumn(),
        TextColumn("{task.fields[news]}", table_column=Column(no_wrap=True)),
        TimeRemainingColumn(compact=True),
        console=console,
        expand=True,
    )
    width = max(map(len, names))

    def bar(name: str) -> OnEpoch:
        task = progress.add_task(
            f"{name:<{width}}", total=epochs, visible=False, news=""
        )
        return lambda epoch: progress.update(
            task, completed=epoch.number, news=_news(epoch), visible=True
        )

    with progress:
        yield {name: bar(name) for name in names}


def _news(epoch: Epoch) -> str:
    units = spell_widths(epoch.effective)
    held_out = epoch.validation_error
    error = (
        f"error {epoch.test_error:5.2f} %"
        if held_out is None
        else f"held out {held_out:5.2f} %"
    )
    return (
        f"loss {epoch.loss:.3f}  {error}  {units:<{_WIDTH}} {short(epoch.macs):>5} MACs"
    )

"""Runs on a terminal: a bar while they last; computes nothing."""

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

from diffprune.lab.runs.records import Epoch
from diffprune.lab.training.loop import OnEpoch

_LONGEST: Final = len("20-50-800-500")
"""Longer architectures are summed up: a line has no room for them."""


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


def architecture(widths: Mapping[str, int]) -> str:
    """Units per gate, as the literature writes them; nothing without gates.

    Examples:
        >>> architecture({"conv1": 20, "conv2": 50})
        '20-50'
    """
    return "-".join(map(str, widths.values()))


def short(number: int) -> str:
    """Three digits and a letter.

    Examples:
        >>> short(2_293_000), short(414_150), short(7)
        ('2.29M', '414k', '7')
    """
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:#.3g}".rstrip(".") + letter
    return str(number)


def _news(epoch: Epoch) -> str:
    """One line of fixed width, so that the bars do not jump."""
    units = architecture(epoch.effective)
    if len(units) > _LONGEST:
        units = f"{sum(epoch.effective.values()):,} units"
    chosen = epoch.validation_error
    error = epoch.test_error if chosen is None else chosen
    return (
        f"loss {epoch.loss:.3f}  error {error:5.2f} %  "
        f"{units:<{_LONGEST}} {short(epoch.macs):>5} MACs"
    )

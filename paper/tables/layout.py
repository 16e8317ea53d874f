"""How the tables of the paper look: slim, so that a terminal of 80 columns shows all.

A number that is cut is no number.
"""

import statistics
from collections.abc import Iterator, Sequence

from rich import box
from rich.table import Table


def empty_table(
    title: str, headings: Sequence[str], caption: str | None = None
) -> Table:
    """A table without rows: a column of names, then one for each heading.

    Args:
        title: Above it.
        headings: Of the columns on the right.
        caption: Below it.
    """
    table = Table(
        title=title, title_justify="left", caption=caption, caption_justify="left",
        box=box.SIMPLE_HEAD, show_edge=False, padding=0,
    )  # fmt: skip
    table.add_column("", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def mean_row(
    errors: Sequence[float], *, empty: int, title: str = "mean"
) -> Iterator[tuple[str, ...]]:
    """Yield the mean of the errors of several runs; nothing, if there is one run.

    Args:
        errors: In per cent.
        empty: Cells between the title and the error.
        title: What the row is called.

    Examples:
        >>> list(mean_row([1.0, 0.5], empty=1))
        [('mean', '', '0.75')]
    """
    if len(errors) > 1:
        yield title, *[""] * empty, f"{statistics.mean(errors):.2f}"

"""How the tables of the paper look: slim, so that a terminal of 80 columns shows all.

A number that is cut is no number.
"""

from collections.abc import Sequence

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

"""Text that is a table: aligned in a terminal, an HTML table in a notebook."""

from collections.abc import Collection, Sequence
from html import escape
from typing import final


@final
class Shown(str):  # noqa: SLOT000 - its parts are kept for `_repr_html_`
    """A table with lines before and after it, as plain text.

    It is a string and can be used as one. A terminal that echoes it shows the table,
    and a notebook shows it as HTML.

    Args:
        rows: The rows, the header first; all of one length.
        numbers: The columns that hold numbers: these are aligned on the right.
        before: Lines above the table.
        after: Lines below it.

    Examples:
        >>> Shown([("name", "units"), ("conv1", "20")], numbers=[1])
        name   units
        conv1     20
    """

    def __new__(
        cls,
        rows: Sequence[tuple[str, ...]],
        *,
        numbers: Collection[int] = (),
        before: Sequence[str] = (),
        after: Sequence[str] = (),
    ) -> "Shown":
        """Lay the table out as text, and remember its parts."""
        made = super().__new__(
            cls, "\n".join([*before, *aligned(rows, numbers), *after])
        )
        made._parts = rows, numbers, before, after
        return made

    _parts: tuple[
        Sequence[tuple[str, ...]], Collection[int], Sequence[str], Sequence[str]
    ]

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        rows, numbers, before, after = self._parts
        header, *body = rows
        lines = [f"<div>{escape(line)}</div>" for line in before]
        lines += ["<table>", _row(header, numbers, "th")]
        lines += [_row(row, numbers, "td") for row in body]
        lines += ["</table>", *(f"<div>{escape(line)}</div>" for line in after)]
        return "\n".join(lines)


def aligned(rows: Sequence[tuple[str, ...]], numbers: Collection[int]) -> list[str]:
    """Lay out rows of text in columns.

    Args:
        rows: All of one length.
        numbers: The columns that hold numbers: these are aligned on the right.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i in numbers else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _row(cells: Sequence[str], numbers: Collection[int], tag: str) -> str:
    found = [
        f'<{tag} style="text-align:{"right" if i in numbers else "left"}">'
        f"{escape(cell)}</{tag}>"
        for i, cell in enumerate(cells)
    ]
    return f"<tr>{''.join(found)}</tr>"

"""Groups as a table a person can read. Knows groups, not how they were found."""

from collections.abc import Sequence

from diffprune._graph.group import FrozenAxis, PruneGroup
from diffprune._graph.rule_api import SPATIAL


def describe(groups: Sequence[PruneGroup], frozen: Sequence[FrozenAxis]) -> list[str]:
    """One line per group, then what is frozen and why."""
    header = ("group", "units", "parameters/unit", "MACs/unit", "where")
    lines = _table([header, *map(_row, groups)])
    reasons = [f"  {axis}" for axis in frozen if axis.reason.why != SPATIAL]
    return [*lines, "frozen:", *reasons] if reasons else lines


def _row(group: PruneGroup) -> tuple[str, ...]:
    places = [f"{axis.tensor}[{axis.dim}]" for axis in group.axes]
    more = f" +{len(places) - 3}" if places[3:] else ""
    numbers = (f"{group.size:,}", f"{group.parameters:,}", f"{group.macs:,}")
    return (group.name, *numbers, ", ".join(places[:3]) + more)


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    numeric = {1, 2, 3}
    return [
        "  ".join(
            cell.rjust(width) if i in numeric else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]

"""Groups as a table a person can read. Knows groups, not how they were found."""

from diffprune.graph.call import SPATIAL
from diffprune.graph.groups import Groups


def describe(groups: Groups) -> str:
    """One line per group, then what is frozen and why."""
    total = groups.parameters(), groups.macs()
    rows = [("group", "units", "parameters/unit", "MACs/unit", "where")]
    for group in groups:
        places = [f"{axis.tensor}[{axis.dim}]" for axis in group.axes]
        shown = ", ".join(places[:3]) + (f" +{len(places) - 3}" if places[3:] else "")
        costs = (f"{group.parameters:,}", f"{group.macs:,}")
        rows.append((group.name, str(group.size), *costs, shown))
    title = (
        f"{len(groups)} groups in a model of {total[0]:,} parameters "
        f"and {total[1]:,} MACs"
    )
    frozen = [f"  {axis}" for axis in groups.frozen if axis.reason.why != SPATIAL]
    return "\n".join([title, *_table(rows), *(["frozen:", *frozen] if frozen else [])])


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

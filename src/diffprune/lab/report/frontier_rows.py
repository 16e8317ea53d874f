"""Networks as points, error against cost: which of them no other one beats."""

from collections.abc import Iterable, Sequence

from diffprune.lab.report.charts import KINDS
from diffprune.lab.report.networks import Network, spell_widths
from diffprune.lab.report.references import EVIDENCE, Published
from diffprune.lab.report.rows import Row


def front_rows(
    networks: Iterable[Network], published: Iterable[Published]
) -> list[Row]:
    """One row per network, ours and others', for error against cost.

    `best_macs` and `best_parameters` say whether no other network of its group is
    cheaper without erring more.
    """
    ours = [
        {
            "name": network.name,
            "kind": KINDS[0],
            "group": "ours",
            "error": network.error,
            "macs": network.macs,
            "parameters": network.parameters,
            "architecture": spell_widths(network.widths) or "dense",
            "source": "this report",
        }
        for network in networks
        if network.error is not None
    ]
    return [*_with_best(ours), *_with_best([_published_row(row) for row in published])]


def _published_row(row: Published) -> Row:
    is_paper = row.method.startswith("DiffPrune")
    return {
        "name": row.method,
        "kind": KINDS[1] if is_paper else KINDS[2],
        "group": "published",
        "error": row.error,
        "macs": row.widths.macs,
        "parameters": row.widths.parameters,
        "architecture": str(row.widths),
        "source": f"{row.source} ({EVIDENCE[row.evidence]})",
    }


def _with_best(group: Sequence[Row]) -> list[Row]:
    return [
        {
            **row,
            "best_macs": _is_best(row, group, "macs"),
            "best_parameters": _is_best(row, group, "parameters"),
        }
        for row in group
    ]


def _is_best(row: Row, group: Iterable[Row], cost: str) -> bool:
    at = row[cost], row["error"]
    others = ((other[cost], other["error"]) for other in group)
    return not any(o != at and o[0] <= at[0] and o[1] <= at[1] for o in others)

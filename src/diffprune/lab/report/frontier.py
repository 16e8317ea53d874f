"""Networks as points, error against cost: those of runs, and published ones."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from diffprune._core.door import check_fields
from diffprune._core.types import Amount, Natural
from diffprune.lab.formatting import spell_widths
from diffprune.lab.report.networks import Network
from diffprune.lab.report.rows import Row

OURS: Final = "your runs"


@dataclass(frozen=True, kw_only=True)
class Reference:
    """A network that a report shows beside its runs: a published result, say.

    Attributes:
        label: What plots and tables call it.
        error: On the same test set, in percent.
        macs: Multiply-adds for one example.
        parameters: Their number.
        widths: Its units, as text: `"10-20-71-35"`.
        note: Where the numbers stand, and how sure they are.
        group: Its name in the legend. Only references of one group compete with each
            other for the front.

    Examples:
        >>> paper = Reference(label="theirs", error=1.0, macs=466_835, parameters=8_160)
        >>> paper.group
        'published'
    """

    label: str
    error: Amount
    macs: Natural
    parameters: Natural
    widths: str = ""
    note: str = ""
    group: str = "published"

    def __post_init__(self) -> None:
        check_fields(self)


def front_rows(
    networks: Iterable[Network], references: Sequence[Reference]
) -> list[Row]:
    """One row per network, ours and others', for error against cost.

    `best_macs` and `best_parameters` say whether no other network of its group is
    cheaper without erring more.
    """
    ours = [
        {
            "name": network.name,
            "kind": OURS,
            "error": network.error,
            "macs": network.macs,
            "parameters": network.parameters,
            "architecture": spell_widths(network.widths) or "dense",
            "source": "this report",
        }
        for network in networks
        if network.error is not None
    ]
    rows = _with_best(ours)
    for group in dict.fromkeys(reference.group for reference in references):
        rows += _with_best([_row(r) for r in references if r.group == group])
    return rows


def _row(reference: Reference) -> Row:
    return {
        "name": reference.label,
        "kind": reference.group,
        "error": reference.error,
        "macs": reference.macs,
        "parameters": reference.parameters,
        "architecture": reference.widths,
        "source": reference.note,
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

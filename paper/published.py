"""Results that others have published for LeNet-5 on MNIST: `published.json` as data.

A row's costs follow from its architecture: four widths say all about a LeNet-5.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from diffprune.lab.report import Reference
from paper.models.lenet5 import Widths

_ROWS: Final = Path(__file__).with_suffix(".json")
_EVIDENCE: Final = {
    "printed": "as printed",
    "figure": "read off a figure",
    "unchecked": "quoted, not checked against the source",
}


@dataclass(frozen=True, kw_only=True)
class Published:
    """One published network.

    Attributes:
        method: What made it.
        widths: Units behind `conv1`, `conv2`, the flattening and `fc1`.
        error: On the test set, in percent.
        evidence: How sure that error is: printed, read off a figure, or quoted from
            another paper and not checked against the source.
        source: Where it stands.
    """

    method: str
    widths: Widths
    error: float
    evidence: Literal["printed", "figure", "unchecked"]
    source: str

    @property
    def is_ours(self) -> bool:
        """Whether it is a row of the paper that is run again here."""
        return self.method.startswith("DiffPrune")

    def reference(self) -> Reference:
        """The same as a point of a report."""
        return Reference(
            label=self.method,
            error=self.error,
            macs=self.widths.macs,
            parameters=self.widths.parameters,
            widths=str(self.widths),
            note=f"{self.source}; {_EVIDENCE[self.evidence]}",
            group="the paper" if self.is_ours else "others, published",
        )


def lenet5_on_mnist() -> tuple[Published, ...]:
    """Return the paper's Table 1 and later results, in the same four numbers.

    Examples:
        >>> paper = lenet5_on_mnist()[1]
        >>> print(paper.method, paper.widths, paper.error, paper.widths.macs)
        DiffPrune reg 10-20-71-35 1.0 466835
    """
    return tuple(
        Published(
            method=row["method"],
            widths=Widths(*row["architecture"]),
            error=row["error"],
            evidence=row["evidence"],
            source=row["source"],
        )
        for row in json.loads(_ROWS.read_text(encoding="utf-8"))["rows"]
    )

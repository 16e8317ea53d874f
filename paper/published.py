"""Published results for LeNet-5 on MNIST, and where each of them stands.

A row's costs follow from its architecture: four widths say all about a LeNet-5.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from diffprune.lab.report import Reference
from paper.models.counting import Widths

LENET5: Final = Widths(20, 50, 800, 500)
"""The network that all of them started from."""

EVIDENCE: Final = {
    "printed": "as printed",
    "figure": "read off a figure",
    "unchecked": "quoted, not checked against the source",
}
"""How sure an error is, in words."""

_ROWS: Final = Path(__file__).with_name("published.json")


@dataclass(frozen=True, kw_only=True)
class Published:
    """One published network.

    Attributes:
        method: What made it.
        widths: Units after `conv1`, `conv2`, the flattening and `fc1`.
        error: On the test set, in percent.
        evidence: How sure that error is; see `EVIDENCE`.
        source: Where it stands.
    """

    method: str
    widths: Widths
    error: float
    evidence: Literal["printed", "figure", "unchecked"]
    source: str

    def reference(self) -> Reference:
        """The same as a point that `write_report` shows beside runs."""
        is_paper = self.method.startswith("DiffPrune")
        return Reference(
            label=self.method,
            error=self.error,
            macs=self.widths.macs,
            parameters=self.widths.parameters,
            widths=str(self.widths),
            note=f"{self.source} ({EVIDENCE[self.evidence]})",
            group="the paper" if is_paper else "others, published",
        )


def lenet5_on_mnist() -> tuple[Published, ...]:
    """The paper's Table 1 and later results, in the same four-number convention.

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

"""Results that others have published on a task of ours; numbers and where they stand.

A row's costs follow from its architecture: four widths say all about a LeNet-5.
"""

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Final, Literal

from paper.models.counting import Widths

LENET5: Final = Widths(20, 50, 800, 500)
"""The network that all of them started from."""

EVIDENCE: Final = {
    "printed": "as printed",
    "figure": "read off a figure",
    "unchecked": "quoted, not checked against the source",
}
"""How sure an error is, in words."""


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


def lenet5_on_mnist() -> tuple[Published, ...]:
    """The paper's Table 1 and later results, in the same four-number convention.

    Examples:
        >>> paper = lenet5_on_mnist()[1]
        >>> print(paper.method, paper.widths, paper.error, paper.widths.macs)
        DiffPrune reg 10-20-71-35 1.0 466835
    """
    text = files("paper").joinpath("published.json").read_text(encoding="utf-8")
    return tuple(
        Published(
            method=row["method"],
            widths=Widths(*row["architecture"]),
            error=row["error"],
            evidence=row["evidence"],
            source=row["source"],
        )
        for row in json.loads(text)["rows"]
    )

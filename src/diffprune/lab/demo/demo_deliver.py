"""What one does with a small network: save it, export it, report on it; trains nothing.

What needs a package that is not installed is left out, and said.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from diffprune._export import to_onnx
from diffprune._io import save_pruned
from diffprune.errors import MissingPackageError
from diffprune.lab.report import write_report
from diffprune.lab.runs.rebuild import rebuild

SAVED = "small"
EXPORTED = "small.onnx"
REPORT = "report.html"


@dataclass(frozen=True)
class Delivery:
    """What was written, and why something was not."""

    files: tuple[Path, ...]
    missing: tuple[str, ...]


def deliver(out: Path, *, dense: Path, pruned: Path) -> Delivery:
    """Write the network of the pruned run into `out` in every form there is.

    Args:
        out: Directory.
        dense: Run folder of the dense network.
        pruned: Run folder of the gated one; the network is made again from it.
    """
    models = rebuild(pruned)
    made = [save_pruned(models.small, out / SAVED)]
    missing = list[str]()
    optional: list[Callable[[], Path]] = [
        lambda: to_onnx(models.small, models.inputs[:2], out / EXPORTED),
        lambda: write_report([dense, pruned], out / REPORT),
    ]
    for write in optional:
        try:
            made.append(write())
        except MissingPackageError as error:
            missing.append(str(error))
    return Delivery(tuple(made), tuple(missing))

"""Keep what a benchmark measured, with the command that makes it again."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from paper.records import ROOT, commit, write_figures as write

from ._timing import Measurement

RESULTS: Final = ROOT / "results"

__all__ = ["RESULTS", "commit", "write", "write_measurements"]


def write_measurements(
    name: str, recipe: Mapping[str, object], measurements: Sequence[Measurement]
) -> Path:
    """Write what `python -m benchmarks NAME` measured, and return the file."""
    path = RESULTS / "benchmarks" / f"{name}.json"
    write(
        path,
        f"python -m benchmarks {name}",
        recipe={**recipe, "threads": 1},
        measurements=[asdict(measurement) for measurement in measurements],
    )
    return path

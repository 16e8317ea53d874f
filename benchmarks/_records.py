"""A benchmark's figures on disk, with all that is needed to print them again."""

import datetime as dt
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from ._timing import Measurement


def write_record(
    path: Path, recipe: Mapping[str, object], measurements: Sequence[Measurement]
) -> None:
    """Write one JSON file, over that of an earlier day."""
    write(
        path,
        f"python -m benchmarks {path.stem}",
        recipe={**recipe, "threads": 1},
        measurements=[asdict(measurement) for measurement in measurements],
    )


def write_results(path: Path, command: str, results: Sequence[object]) -> None:
    """Write how some runs ended, one dataclass each, over those of an earlier day."""
    write(path, command, results=[vars(result) for result in results])


def write(path: Path, command: str, **found: object) -> None:
    """Write figures of any kind, beside the command that makes them again."""
    record = {
        "command": command,
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("diffprune", "torch")},
        },
        "machine": platform.machine(),
        **found,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")

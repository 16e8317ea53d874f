"""One line per measurement, on disk, with all that is needed to make it again."""

import datetime as dt
import json
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from paper.records import ROOT, commit

FILE: Final = ROOT / "results" / "choice" / "records.jsonl"
COMMAND: Final = "python -m benchmarks.choice"


@dataclass(frozen=True, kw_only=True)
class Record:
    """One network that was made, and how good it is.

    Attributes:
        kind: `dense`, `screen` (which peers to keep), `rate` (which learning rate) or
            `cell` (of the table).
        task: Name of the task.
        seed: Of the weights, of the order of data, and of what is drawn by lot.
        method: How it was made; `+ refit` where the refit of diffprune followed.
        target: Part of the multiply-adds it may have.
        compute: Training compute, as a part of that of the pretraining.
        rate: Peak learning rate, as a part of that of the pretraining.
        recipe: What else there is to say about how.
        macs: Part of the multiply-adds it has.
        steps: Steps it was trained for.
        charged: What preparing it cost, in images through the whole network.
        held_out_error: Error in per cent on held-out training images.
        held_out_loss: Negative log-likelihood on them.
        test_error: Error in per cent on test images; only cells have it.
        test_loss: Negative log-likelihood on them.
        seconds: Processor seconds, of preparing and training.
        failed: Why there is none.
    """

    kind: str
    task: str
    seed: int
    method: str = ""
    target: float = 1.0
    compute: float = 0.0
    rate: float = 1.0
    recipe: dict[str, Any] = field(default_factory=dict)
    macs: float = 1.0
    steps: int = 0
    charged: float = 0.0
    held_out_error: float | None = None
    held_out_loss: float | None = None
    test_error: float | None = None
    test_loss: float | None = None
    seconds: float = 0.0
    failed: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """What was asked for; a cell has one learning rate, chosen before."""
        rate = None if self.kind == "cell" else self.rate
        return (
            self.kind,
            self.task,
            self.seed,
            self.method,
            self.target,
            self.compute,
            rate,
        )


def append(record: Record, path: Path = FILE) -> None:
    """Add one record to the file, with command, date, versions and commit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = {
        "command": COMMAND,
        "date": dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "versions": _versions(),
    }
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({**asdict(record), **made}) + "\n")


def load(path: Path = FILE) -> dict[tuple[Any, ...], Record]:
    """The newest record of everything that was asked for."""
    return {record.key: record for record in _read(path)}


def _read(path: Path) -> Iterator[Record]:
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            for name in ("command", "date", "commit", "versions"):
                del row[name]
            yield Record(**row)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("diffprune", "torch", "torch-pruning"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found

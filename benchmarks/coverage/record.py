"""One line per attempt, on disk."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.coverage.verdict import Status, Verdict


@dataclass(frozen=True)
class Record:
    """How one library did on one model.

    Args:
        version: What was measured: a commit of ours, a release of the peer.
        reason: The first line of a refusal or an error, empty otherwise.
        verdict: The measurements, where there was something to measure.
    """

    zoo: str
    name: str
    library: str
    version: str
    status: Status
    seconds: float
    reason: str = ""
    groups: int = 0
    verdict: Verdict | None = None

    @property
    def key(self) -> str:
        """The model, unique over all zoos."""
        return f"{self.zoo}/{self.name}"


def append(path: Path, record: Record) -> None:
    """Add one record to the file, creating it where needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(record)) + "\n")


def load(path: Path) -> list[Record]:
    """The newest record of every library and model, in order of first appearance."""
    newest: dict[tuple[str, str], Record] = {}
    for record in _read(path) if path.exists() else ():
        newest[record.library, record.key] = record
    return list(newest.values())


def _read(path: Path) -> Iterator[Record]:
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        row["status"] = Status(row["status"])
        if row["verdict"] is not None:
            row["verdict"]["status"] = row["status"]
            row["verdict"] = Verdict(**row["verdict"])
        yield Record(**row)

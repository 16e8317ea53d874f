"""What the demo leaves on disk; knows nothing of how it came about."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from diffprune.demo.summary import Summary
from diffprune.experiment import records

METRICS = "metrics.jsonl"
SUMMARY = "summary.json"
WEIGHTS = "small.safetensors"


def paths(out: Path) -> tuple[Path, ...]:
    """Where `write_files` writes."""
    return (out / METRICS, out / SUMMARY, out / WEIGHTS)


def write_files(out: Path, summary: Summary) -> None:
    """Write the curves, the summary and the weights, over those of an earlier run."""
    lines = (json.dumps(record) for record in _metrics(summary))
    (out / METRICS).write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = json.dumps(summary.to_dict(), indent=2) + "\n"
    (out / SUMMARY).write_text(text, encoding="utf-8")
    shutil.copyfile(out / "pruned" / records.WEIGHTS, out / WEIGHTS)


def _metrics(summary: Summary) -> Iterable[dict[str, Any]]:
    for network, run in (("dense", summary.dense), ("pruned", summary.pruned)):
        for epoch in run.epochs:
            yield {"network": network, **epoch.to_dict()}

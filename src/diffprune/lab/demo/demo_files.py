"""What the demo writes about itself; knows nothing of how it came about."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from diffprune.lab.demo.demo_summary import Summary

METRICS = "metrics.jsonl"
SUMMARY = "summary.json"


def paths(out: Path) -> tuple[Path, ...]:
    """Where `write_files` writes."""
    return (out / METRICS, out / SUMMARY)


def write_files(out: Path, summary: Summary) -> None:
    """Write the curves and the summary, over those of an earlier run."""
    lines = (json.dumps(record) for record in _metrics(summary))
    (out / METRICS).write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = json.dumps(summary.to_dict(), indent=2) + "\n"
    (out / SUMMARY).write_text(text, encoding="utf-8")


def _metrics(summary: Summary) -> Iterable[dict[str, Any]]:
    for network, run in (("dense", summary.dense), ("pruned", summary.pruned)):
        for epoch in run.epochs:
            yield {"network": network, **epoch.to_dict()}

"""What the demo leaves on disk; knows nothing of how it came about."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import nn

from diffprune.demo.summary import Summary
from diffprune.errors import ArgumentError

METRICS = "metrics.jsonl"
SUMMARY = "summary.json"
WEIGHTS = "pruned.safetensors"


def make_directory(out: Path) -> None:
    """Create `out` with its parents, before time is spent on filling it.

    Raises:
        ArgumentError: If `out` cannot be a directory.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(
            f"cannot write into `{out}`: {error.strerror}.\n"
            "Name another directory with `--out`, for instance `--out runs/demo`."
        ) from error


def paths(out: Path) -> tuple[Path, ...]:
    """Where `write_files` writes."""
    return (out / METRICS, out / SUMMARY, out / WEIGHTS)


def write_files(out: Path, summary: Summary, pruned: nn.Module) -> None:
    """Write the curves, the summary and the weights, over those of an earlier run."""
    lines = (json.dumps(record) for record in _metrics(summary))
    (out / METRICS).write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = json.dumps(summary.to_dict(), indent=2) + "\n"
    (out / SUMMARY).write_text(text, encoding="utf-8")
    save_file(pruned.state_dict(), out / WEIGHTS)


def _metrics(summary: Summary) -> Iterable[dict[str, Any]]:
    for network, outcome in (("dense", summary.dense), ("pruned", summary.pruned)):
        for epoch in outcome.history:
            yield {"network": network, **asdict(epoch)}

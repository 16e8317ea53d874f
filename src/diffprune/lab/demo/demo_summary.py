"""The outcome of the demo as plain data; knows neither disks nor screens."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diffprune._surgery.compare import Certificate
from diffprune.lab.runs.records import Outcome, Run
from paper.models.counting import Widths

DENSE = Widths(20, 50, 800, 500)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Everything that the demo has to say at the end."""

    dense: Run
    pruned: Run
    seconds: float
    files: tuple[Path, ...]
    missing: tuple[str, ...] = ()

    def certificate(self) -> Certificate | None:
        """The largest difference that any removal made; None if there was none."""
        found = [r.certificate for r in self.pruned.removals if r.certificate]
        return max(found, key=lambda c: c.max_relative, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return the same without the histories, ready for JSON."""
        recipe, worst = self.pruned.recipe, self.certificate()
        return {
            "command": f"diffprune demo --seed {recipe.seed} --epochs {recipe.epochs}",
            "seed": recipe.seed,
            "recipe": recipe.to_dict(),
            "dense": _network(self.dense),
            "pruned": _network(self.pruned),
            "removals": len(self.pruned.removals),
            "certificate": None if worst is None else str(worst),
            "seconds": round(self.seconds, 1),
            "environment": dict(self.pruned.environment),
            "files": [str(path) for path in self.files],
            "missing": list(self.missing),
        }


def outcome(run: Run) -> Outcome:
    """What a run ended with; those of the demo always end."""
    assert run.outcome is not None  # noqa: S101 - `train` has returned
    return run.outcome


def raw(run: Run) -> Widths:
    """Open gates; without gates everything is open."""
    return Widths(*outcome(run).raw.values()) if run.removals else DENSE


def effective(run: Run) -> Widths:
    """Units that are left."""
    return Widths(*outcome(run).effective.values()) if run.removals else DENSE


def _network(run: Run) -> dict[str, Any]:
    end = outcome(run)
    return {
        "raw_widths": raw(run),
        "effective_widths": effective(run),
        "weights": effective(run).weights,
        "parameters": end.parameters,
        "macs": end.macs,
        "validation_error": end.validation_error,
        "test_error": end.test_error,
        "seconds_per_epoch": [epoch.seconds for epoch in run.epochs],
    }

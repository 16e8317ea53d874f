"""The outcome of the demo as plain data; knows neither disks nor screens."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from diffprune.demo.training import Epoch, Recipe


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How the training of one network went; errors are percentages."""

    history: tuple[Epoch, ...]
    test_error: float

    @property
    def final(self) -> Epoch:
        """The last epoch, whose network is the one that was tested."""
        return self.history[-1]

    def to_dict(self) -> dict[str, Any]:
        """Return the final state and its costs, ready for JSON."""
        effective = self.final.effective
        return {
            "raw_widths": self.final.raw,
            "effective_widths": effective,
            "weights": effective.weights,
            "parameters": effective.parameters,
            "macs": effective.macs,
            "validation_error": self.final.validation_error,
            "test_error": self.test_error,
        }


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Everything that the demo has to say at the end."""

    seed: int
    recipe: Recipe
    dense: Outcome
    pruned: Outcome
    date: str
    seconds: float
    versions: dict[str, str]
    files: tuple[Path, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the same without the histories, ready for JSON."""
        epochs = self.recipe.epochs
        return {
            "command": f"diffprune demo --seed {self.seed} --epochs {epochs}",
            "date": self.date,
            "seed": self.seed,
            "recipe": asdict(self.recipe),
            "dense": self.dense.to_dict(),
            "pruned": self.pruned.to_dict(),
            "seconds": round(self.seconds, 1),
            "versions": self.versions,
            "files": [str(path) for path in self.files],
        }

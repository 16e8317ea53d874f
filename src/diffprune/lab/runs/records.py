"""What a run says about itself, as frozen data, and how to read it back.

Knows the names and formats of the files in a run folder, not how they came about.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from diffprune._pruner import RemovalRecord
from diffprune.errors import ArgumentError
from diffprune.lab.training.recipe import Recipe

RECIPE: Final = "recipe.json"
TASK: Final = "task.json"
ENVIRONMENT: Final = "environment.json"
METRICS: Final = "metrics.jsonl"
REMOVALS: Final = "removals.jsonl"
SUMMARY: Final = "summary.json"
PLAN: Final = "plan.json"
WEIGHTS: Final = "model.safetensors"
CHECKPOINT: Final = "checkpoint.pt"

Widths = Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """One epoch; errors are percentages.

    Attributes:
        number: Counted from one.
        loss: Mean over the batches, without the penalty.
        train_error: Of the training batches, as they were seen.
        validation_error: After the epoch, if there is validation data.
        test_error: After the epoch; nothing is chosen with it.
        raw: Open units of every gate.
        effective: Those among them that the data still has.
        parameters: Of the model as it is in memory, gates aside.
        macs: Multiply-adds of a forward pass for one example, in that model.
        macs_per_step: Of a training step: the backward pass counts twice the forward.
        seconds: Training alone, evaluation aside.
        lr: Learning rate of the weights.
        prob_open: Open probability of every unit that is left, to four digits.
        steps: Of the optimizer; zero in records that do not say.
        processor_seconds: What the processor gave to training, all threads together:
            where a machine is shared, it tells more than `seconds`.
    """

    number: int
    loss: float
    train_error: float
    validation_error: float | None
    test_error: float
    raw: Widths
    effective: Widths
    parameters: int
    macs: int
    macs_per_step: int
    seconds: float
    lr: float
    prob_open: Mapping[str, list[float]]
    steps: int = 0
    processor_seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The plain network that a finished run leaves; errors are percentages.

    Attributes:
        raw: Open gates before they were folded away.
        effective: Units that are left of each.
        parameters: Of the network.
        macs: Multiply-adds for one example.
        validation_error: If there is validation data.
        test_error: Of the network as it was saved.
        seconds: Training alone, all epochs.
    """

    raw: Widths
    effective: Widths
    parameters: int
    macs: int
    validation_error: float | None
    test_error: float
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run folder in memory.

    Attributes:
        recipe: What was asked for.
        environment: Versions, machine, date.
        epochs: What happened so far.
        removals: What was removed, with a certificate each.
        outcome: The network that came out; None while the run is unfinished.
        task: Where the task is written, as `find_callable` reads it, seen from the
            folder; None if it was made on the fly.
    """

    recipe: Recipe
    environment: Mapping[str, Any]
    epochs: tuple[Epoch, ...]
    removals: tuple[RemovalRecord, ...]
    outcome: Outcome | None
    task: str | None = None


def read_run(folder: str | os.PathLike[str]) -> Run:
    """Read a run, finished or not.

    Raises:
        ArgumentError: If the folder holds none, or a damaged one.
    """
    path = Path(folder)
    if not (path / RECIPE).is_file():
        raise ArgumentError(f"`{folder}` holds no run: there is no `{RECIPE}` in it.")
    try:
        return _read(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArgumentError(
            f"the run in `{folder}` is damaged, or of another version of diffprune: "
            f"{type(error).__name__}: {error}"
        ) from error


def _read(folder: Path) -> Run:
    outcome = read_json(folder / SUMMARY) if (folder / SUMMARY).exists() else None
    return Run(
        recipe=Recipe.from_dict(read_json(folder / RECIPE)),
        environment=read_json(folder / ENVIRONMENT),
        epochs=tuple(Epoch(**line) for line in read_lines(folder / METRICS)),
        removals=tuple(map(RemovalRecord.from_dict, read_lines(folder / REMOVALS))),
        outcome=None if outcome is None else Outcome(**outcome),
        task=read_json(folder / TASK)["task"] if (folder / TASK).exists() else None,
    )


def read_json(path: Path) -> dict[str, Any]:
    """Read one JSON object."""
    return json.loads(path.read_text(encoding="utf-8"))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON objects, one per line; none if there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

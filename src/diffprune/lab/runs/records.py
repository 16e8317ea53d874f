"""Read run folders: from files to a `Run`, frozen data with everything on record."""

import json
import os
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from diffprune._core.door import check_fields, door
from diffprune._core.files import reading
from diffprune._pruner import RemovalRecord
from diffprune._surgery.compare import Certificate
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
CHECKPOINT: Final = "checkpoint.safetensors"
INPUTS: Final = "inputs.safetensors"
LOCK: Final = ".lock"

Widths = Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """One epoch; errors are percentages.

    Attributes:
        number: Counted from one.
        loss: Mean over the batches, without the penalty.
        train_error: Of the training batches, as they were seen, if it was recorded.
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
        test_examples: That the test error is a mean of, each right or wrong; zero where
            it is not known.
        worth: By gate, what its units are worth on average; one is the mean over all
            units of all gates. Without gates that are known there is none.
    """

    number: int
    loss: float
    train_error: float | None
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
    test_examples: int = 0
    worth: Mapping[str, float] = field(default_factory=dict[str, float])

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
        test_examples: That the test error is a mean of, each right or wrong; zero where
            it is not known.
    """

    raw: Widths
    effective: Widths
    parameters: int
    macs: int
    validation_error: float | None
    test_error: float
    seconds: float
    test_examples: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run folder in memory.

    Attributes:
        folder: Where it was read.
        name: What tables call it: the name of the folder, or as much of its path as
            tells several runs apart.
        recipe: What was asked for.
        environment: Versions, machine, date.
        epochs: What happened so far.
        removals: What was removed, with a certificate each.
        outcome: The network that came out; None while the run is unfinished.
        task: Where the task is written, as `find_callable` reads it, seen from the
            folder; None if it was made on the fly. Of a run that `record` wrote, where
            the function is that makes the model.
    """

    folder: Path
    name: str
    recipe: Recipe
    environment: Mapping[str, Any]
    epochs: tuple[Epoch, ...]
    removals: tuple[RemovalRecord, ...]
    outcome: Outcome | None
    task: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def latest(self) -> Outcome | Epoch | None:
        """The network as it is on record: the outcome, or that of the last epoch."""
        return self.outcome or (self.epochs[-1] if self.epochs else None)

    @property
    def is_dense(self) -> bool:
        """Whether it was trained without gates."""
        return self.recipe.is_dense

    def worst_certificate(self) -> Certificate | None:
        """The largest change of an output by any removal; None without removals."""
        found = [r.certificate for r in self.removals if r.certificate]
        return max(found, key=lambda c: (c.is_vacuous, c.max_relative), default=None)

    def to_dict(self) -> dict[str, Any]:
        """What the run has come to, for JSON; null where there is nothing yet."""
        latest, worst = self.latest, self.worst_certificate()
        return {
            "folder": str(self.folder),
            "is_finished": self.outcome is not None,
            "epochs": len(self.epochs),
            "recipe": self.recipe.to_dict(),
            "test_error": latest and latest.test_error,
            "validation_error": latest and latest.validation_error,
            "parameters": latest and latest.parameters,
            "macs": latest and latest.macs,
            "units": latest and dict(latest.effective),
            "seconds": round(sum(epoch.seconds for epoch in self.epochs), 3),
            "removals": len(self.removals),
            "worst_relative_difference": worst and worst.max_relative,
        }


@door
def read_run(folder: str | os.PathLike[str]) -> Run:
    """Read a run, finished or not.

    Args:
        folder: What `train` wrote.

    Raises:
        ArgumentError: If the folder holds no run, or a damaged one.
    """
    path = Path(folder)
    with reading(path):
        has_run = (path / RECIPE).is_file()
    if not has_run:
        raise ArgumentError(f"`{folder}` holds no run: there is no `{RECIPE}` in it.")
    try:
        return _read(path)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArgumentError(
            f"the run in `{folder}` is damaged, or of another version of diffprune: "
            f"{type(error).__name__}: {error}"
        ) from error


def read_runs(folders: Sequence[str | os.PathLike[str]]) -> tuple[Run, ...]:
    """Read several runs, each under a name of its own.

    Raises:
        ArgumentError: If a folder holds no run, or a damaged one.
    """
    runs = [read_run(folder) for folder in folders]
    names = _distinct([run.folder.resolve() for run in runs])
    return tuple(replace(r, name=name) for r, name in zip(runs, names, strict=True))


def _distinct(folders: Sequence[Path]) -> list[str]:
    """Folder names; with their parents', and then with numbers, until they differ."""
    names = [folder.name for folder in folders]
    if len(set(names)) < len(names):
        names = [f"{folder.parent.name}/{folder.name}" for folder in folders]
    seen: Counter[str] = Counter()
    for index, name in enumerate(names):
        seen[name] += 1
        if seen[name] > 1:
            names[index] = f"{name} ({seen[name]})"
    return names


def _read(folder: Path) -> Run:
    outcome = read_json(folder / SUMMARY) if (folder / SUMMARY).exists() else None
    return Run(
        folder=folder,
        name=folder.resolve().name,
        recipe=Recipe.from_dict(read_json(folder / RECIPE)),
        environment=read_json(folder / ENVIRONMENT),
        epochs=tuple(Epoch(**line) for line in read_lines(folder / METRICS)),
        removals=tuple(map(RemovalRecord.from_dict, read_lines(folder / REMOVALS))),
        outcome=None if outcome is None else Outcome(**outcome),
        task=read_json(folder / TASK)["task"] if (folder / TASK).exists() else None,
    )


def read_json(path: Path) -> dict[str, Any]:
    """Read one JSON object."""
    with _naming(path):
        return json.loads(path.read_text(encoding="utf-8"))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read JSON objects, one per line; none if there is no file."""
    if not path.exists():
        return []
    with _naming(path):
        return [json.loads(n) for n in path.read_text(encoding="utf-8").splitlines()]


@contextmanager
def _naming(path: Path) -> Generator[None]:
    """Say of which file it is that it cannot be read."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"`{path.name}`: {error}") from error

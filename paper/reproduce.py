"""The paper's experiments by name, and records of them; trains nothing.

A *record* is a run folder without weights and without the open probability of every
unit in every epoch: small enough to be kept for good.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.table import Table

from diffprune.errors import ArgumentError
from diffprune.lab.runs import records
from diffprune.lab.runs.records import Run, read_run
from diffprune.lab.training.recipe import Recipe
from diffprune.lab.training.task import MakeTask
from paper import wide_resnet_tasks as wide
from paper.lenet5_tasks import (
    MakeRecipe,
    lenet5_mnist,
    table1_sigmoid,
    table1_sigmoid_kept,
    table1_softmax,
)
from paper.tables.section42 import section42
from paper.tables.table1 import TABLE1, table1

__all__ = [
    "EXPERIMENTS", "TABLE1", "Experiment", "folder_name", "read_records", "table1",
    "write_record",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A part of the paper, as it can be run again.

    Attributes:
        task: What is trained.
        recipes: With which numbers, by seed; what takes longest comes last.
        table: All runs of it, next to what the paper says.
    """

    task: MakeTask
    recipes: tuple[MakeRecipe, ...]
    table: Callable[[Sequence[Run]], Table]


EXPERIMENTS: Final[Mapping[str, Experiment]] = {
    "lenet5": Experiment(
        task=lenet5_mnist,
        recipes=(table1_sigmoid, table1_softmax, table1_sigmoid_kept),
        table=table1,
    ),
    "wrn": Experiment(
        task=wide.small_wrn_cifar10,
        recipes=(wide.small_wrn_high, wide.small_wrn_low, wide.small_wrn_dense),
        table=section42,
    ),
}
"""By the name that `diffprune reproduce` and the folders of records have."""


def folder_name(recipe: Recipe) -> str:
    """Where a run of a recipe is kept."""
    return f"{recipe.name}-seed{recipe.seed}"


def write_record(folder: Path, target: Path) -> None:
    """Keep what is worth keeping of a run, finished or not."""
    run = read_run(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name in (records.RECIPE, records.TASK, records.ENVIRONMENT, records.SUMMARY):
        if (folder / name).exists():
            (target / name).write_bytes((folder / name).read_bytes())
    epochs = [replace(epoch, prob_open={}).to_dict() for epoch in run.epochs]
    text = "".join(json.dumps(epoch) + "\n" for epoch in epochs)
    (target / records.METRICS).write_text(text, encoding="utf-8")
    removals = "".join(json.dumps(r.to_dict()) + "\n" for r in run.removals)
    (target / records.REMOVALS).write_text(removals, encoding="utf-8")


def read_records(folder: Path) -> list[Run]:
    """Read all records in a folder.

    Raises:
        ArgumentError: If there are none.
    """
    paths = sorted(folder.glob(f"*/{records.RECIPE}"))
    found = [run for path in paths if (run := read_run(path.parent)).epochs]
    if not found:
        raise ArgumentError(
            f"`{folder}` holds no records. Name another folder with `--results`, or "
            f"type `diffprune reproduce {folder.name} --run` to make some; that takes "
            "hours."
        )
    return found

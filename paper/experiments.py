"""The tables of the paper that are our own runs: what is trained for each, and how.

Table 1 with every system it compares is in `paper.comparison`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.table import Table

from diffprune.lab import Run
from diffprune.lab.training.task import MakeTask
from paper.lenet5_recipes import TRIALS
from paper.recipe_parts import MakeRecipe
from paper.recipes import TASKS
from paper.tables.lenet5_table import lenet5_table
from paper.tables.trials_table import trials_table
from paper.tables.wide_resnet_table import wide_resnet_table


@dataclass(frozen=True)
class Experiment:
    """A table of the paper.

    Attributes:
        table: From our runs to the table, next to what the paper says.
        runs: What is trained for it, and how; what takes longest comes last.
    """

    table: Callable[[Sequence[Run]], Table]
    runs: tuple[tuple[MakeTask, MakeRecipe], ...]


def _experiment(
    table: Callable[[Sequence[Run]], Table], names: Sequence[str]
) -> Experiment:
    return Experiment(table, tuple(TASKS[name] for name in names))


EXPERIMENTS: Final[Mapping[str, Experiment]] = {
    "lenet5": _experiment(
        lenet5_table,
        ("frontier-teacher-normed", "lenet5-sigmoid-budget", "lenet5-sigmoid-held",
         "lenet5-sigmoid-taught", "lenet5-softmax-held", "lenet5-softmax-taught",
         "lenet5-sigmoid", "lenet5-sigmoid-fading", "lenet5-softmax", "lenet5-dense",
         "lenet5-sigmoid-kept"),
    ),
    "wrn": _experiment(
        wide_resnet_table,
        ("wrn-10-2-dense", "wrn-10-2-low-budget", "wrn-10-2-high-budget",
         "wrn-10-2-low", "wrn-10-2-high"),
    ),
    "wrn-10-4": _experiment(
        wide_resnet_table,
        ("wrn-10-4-high-budget", "wrn-10-4-dense", "wrn-10-4-low-budget",
         "wrn-10-4-low-taught"),
    ),
    "wrn-10-4-few": _experiment(
        wide_resnet_table,
        ("wrn-10-4-few-dense", "wrn-10-4-few-low-budget", "wrn-10-4-few-high-budget"),
    ),
    "wrn-10-1": _experiment(
        wide_resnet_table, ("wrn-10-1-high", "wrn-10-1-low", "wrn-10-1-dense")
    ),
    "lenet5-trials": _experiment(trials_table, [make(0).name for make in TRIALS]),
}  # fmt: skip

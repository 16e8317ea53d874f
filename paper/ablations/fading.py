"""What strengths that fade do to a long run: those of `sigma`, with a milder end.

`python -m paper ablation fading` prints the table. Its runs differ from those with
sigma = 1 of `python -m paper ablation sigma` in one thing: strengths are whole for as
many epochs as a run usually has, fade over as many again, and are gone for the other
eighty.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.table import Table

from diffprune._core.interleaved import one_thread
from diffprune.lab import Recipe, Task, train
from paper.ablations import sigma
from paper.ablations.sigma import Result
from paper.fading_strengths import fading_task
from paper.lenet5_recipes import lenet5_digits

SEEDS: Final = range(3)
SIGMA: Final = 1.0
FADES: Final = (20, 40)
"""From which to which epoch."""

__all__ = ["Result", "measure", "run", "table"]


def task(recipe: Recipe) -> Task:
    """LeNet-5 on digits, with strengths that fade."""
    start, end = (epoch / recipe.epochs for epoch in FADES)
    return fading_task(lenet5_digits(recipe), recipe, start=start, end=end)


def run(seed: int) -> list[Result]:
    """Train once, and look several times."""
    with tempfile.TemporaryDirectory() as out:
        train(task, sigma.recipe(SIGMA, seed), out=out)
        return sigma.looks(SIGMA, Path(out))


def table(results: Sequence[Result]) -> Table:
    """A row for every look."""
    return sigma.table(results)


def measure() -> list[Result]:
    """Run everything, for minutes, on one thread."""
    with one_thread():
        return [result for seed in SEEDS for result in run(seed)]

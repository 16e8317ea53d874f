"""Train the systems of Table 1: one after the other, resumed where they stopped."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from torch import nn

import diffprune as dp
from diffprune.lab import Recipe, Task
from diffprune.lab.cli.run_jobs import Job
from diffprune.lab.image_batches import Batches, Split
from paper.comparison.method import Method, MethodRun
from paper.comparison.systems import METHODS
from paper.data.mnist import load_mnist
from paper.models.lenet5 import LeNet5, channels_last
from paper.records import RESULTS, ROOT, has_finished, train_and_keep

RUNS: Final = ROOT / "runs" / "table1"
RECORDS: Final = RESULTS / "table1"


def task(recipe: Recipe) -> Task:
    """A system on all of MNIST, by the name of its recipe."""
    method = METHODS[recipe.name]
    model = method.model(method.hurry(recipe.epochs))
    if method.starts_dense:
        start_(
            model,
            RUNS / folder_name(METHODS["dense"].asked(recipe.seed, recipe.epochs)),
        )
    return make_task(method, model, load_mnist(), recipe)


def make_task(method: Method, model: nn.Module, data: Split, recipe: Recipe) -> Task:
    """A system on images of digits.

    Args:
        method: The system.
        model: LeNet-5 with its gates and layers.
        data: What it learns from, and the test.
        recipe: Of the run.
    """
    train = Batches(data.train, recipe.batch_size, shuffle=True)
    steps = recipe.epochs * len(train)
    make, run = method.training, MethodRun(method, recipe, steps)
    return Task(
        model=channels_last(model),
        train=train,
        test=Batches(data.test, 1_000),
        optimizer=method.optimizer,
        pruner=None
        if make is None
        else lambda model, examples: make(run, model, examples),
    )


def start_(model: nn.Module, folder: Path) -> None:
    """Copy the weights of a dense network into one with gates."""
    dense = dp.load_pruned(LeNet5(), folder)
    for name, weights in dense.named_parameters():
        model.get_parameter(name).data.copy_(weights)


def folder_name(recipe: Recipe) -> str:
    """Where a run is, and its record: runs of several lengths stand side by side."""
    return f"{recipe.name}-{recipe.epochs}-seed{recipe.seed}"


def train(names: Sequence[str], *, seeds: int, epochs: int | None) -> None:
    """Train what is missing, and keep a record of each; for hours.

    Args:
        names: Of systems; the dense network is trained first if one continues from it.
        seeds: How many.
        epochs: Of each, at most; by default what is published.
    """
    for seed in range(seeds):
        for name in names:
            method = METHODS[name]
            recipe = method.asked(seed, epochs)
            if has_finished(recipe, RECORDS / folder_name(recipe)):
                continue
            if method.starts_dense:
                _finish(METHODS["dense"].asked(seed, recipe.epochs))
            _finish(recipe)


def _finish(recipe: Recipe) -> None:
    name = folder_name(recipe)
    train_and_keep(Job(task, recipe, RUNS / name), RECORDS / name)

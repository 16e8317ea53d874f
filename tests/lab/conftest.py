from dataclasses import replace

import pytest
import torch
from rich.console import Console
from torch import nn

from diffprune.lab import Recipe, Task, read_run, train
from diffprune.lab.image_batches import Batches, Examples


def is_positive_sum(count: int) -> Examples:
    inputs = torch.randn(count, 4, generator=torch.Generator().manual_seed(1))
    return Examples(inputs, (inputs.sum(dim=1) > 0).long())


def toy_task(recipe: Recipe) -> Task:
    """Two classes that a line separates, for a network that is far too wide."""
    return Task(
        model=nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)),
        train=Batches(is_positive_sum(64), recipe.batch_size, shuffle=True),
        validation=Batches(is_positive_sum(32), 32),
        test=Batches(is_positive_sum(40), 32),
    )


@pytest.fixture(scope="session")
def toy():
    return toy_task


@pytest.fixture(scope="session")
def recipe():
    """Strong enough to close units within a few steps."""
    return Recipe(
        name="toy",
        epochs=3,
        batch_size=8,
        lr=1e-2,
        gate_lr=3e-2,
        strength=1e-1,
        remove_every=4,
        decay="cosine",
    )


@pytest.fixture(scope="session")
def done(toy, recipe, tmp_path_factory):
    """A run of one epoch, for tables to show."""
    out = tmp_path_factory.mktemp("runs") / "toy"
    train(toy, replace(recipe, epochs=1), out=out)
    return read_run(out)


@pytest.fixture(scope="session")
def lines_of():
    """From a table to what a narrow terminal shows."""

    def lines(table):
        console = Console(record=True, width=80)
        console.print(table)
        return console.export_text().splitlines()

    return lines

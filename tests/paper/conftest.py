from dataclasses import replace

import pytest
import torch
from rich.console import Console
from torch import nn
from typer.testing import CliRunner

from diffprune.lab import Recipe, Task, read_run, train
from diffprune.lab.image_batches import Batches, Examples
from paper.__main__ import app


def toy_task(recipe: Recipe) -> Task:
    """Two classes that a line separates, for a network that is far too wide."""
    inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    examples = Examples(inputs, (inputs.sum(dim=1) > 0).long())
    return Task(
        model=nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)),
        train=Batches(examples, recipe.batch_size, shuffle=True),
        test=Batches(examples, 32),
    )


@pytest.fixture(scope="session")
def toy():
    return toy_task


@pytest.fixture(scope="session")
def recipe():
    """Strong enough to close units within a few steps."""
    return Recipe(
        name="toy", epochs=3, batch_size=8, lr=1e-2, gate_lr=3e-2, strength=1e-1,
        pruner={"remove_every": 4},
    )  # fmt: skip


@pytest.fixture(scope="session")
def run_folder(recipe, tmp_path_factory):
    """A run folder of one epoch."""
    out = tmp_path_factory.mktemp("runs") / "toy"
    train(toy_task, replace(recipe, epochs=1), out=out)
    return out


@pytest.fixture(scope="session")
def done(run_folder):
    """A run of one epoch, for tables to show."""
    return read_run(run_folder)


@pytest.fixture(scope="session")
def lines_of():
    """From a table to what a terminal shows."""

    def lines(table, width=100):
        console = Console(record=True, width=width)
        console.print(table)
        return console.export_text().splitlines()

    return lines


@pytest.fixture
def paper(monkeypatch, tmp_path):
    """Run a command in an empty directory, on a wide screen without colours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("DIFFPRUNE_DATA", "")  # undone afterwards, whatever is set
    return lambda *arguments: CliRunner().invoke(app, arguments)

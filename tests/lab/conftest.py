import json
from dataclasses import replace

import pytest
import torch
from rich.console import Console
from torch import nn

from diffprune._pruner import RemovalRecord
from diffprune._surgery.compare import Certificate
from diffprune.lab import Epoch, Recipe, Task, read_run, train
from diffprune.lab.image_batches import Batches, Examples
from diffprune.lab.runs.records import Outcome

GATES = {"conv1": 20, "conv2": 50, "fc1": 500}


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
        pruner={"remove_every": 4},
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


def widths(epoch, gates):
    return {gate: max(2, size // (epoch + 1)) for gate, size in gates.items()}


def make_epoch(number, gates):
    left = widths(number, gates)
    return Epoch(
        number=number,
        loss=1 / number,
        train_error=20 / number,
        validation_error=None,
        test_error=16 / number,
        raw=left,
        effective=left,
        parameters=40_000 // number,
        macs=2_000_000 // number,
        macs_per_step=6_000_000 // number,
        seconds=3 / number,
        lr=1e-3,
        prob_open={
            gate: [(k + 0.5) / units for k in range(units)]
            for gate, units in left.items()
        },
        steps=30,
        processor_seconds=2.5 / number,
    )


def make_removal(number, gates):
    certificate = Certificate(1e-6, number * 1e-7, "float32")
    return RemovalRecord(
        30 * number, widths(number, gates), 40_000 // number, 9, certificate
    )


def write_lines(path, records):
    path.write_text("".join(json.dumps(r.to_dict()) + "\n" for r in records))


def _write_run(folder, *, epochs=4, gates=GATES, finished=True, recipe=None, task=None):
    """A run folder as training writes it, without training."""
    folder.mkdir(parents=True)
    strength = 1e-4 if gates else None
    recipe = recipe or Recipe(name=folder.name, epochs=epochs, strength=strength)
    (folder / "recipe.json").write_text(json.dumps(recipe.to_dict()))
    (folder / "task.json").write_text(json.dumps({"task": task}))
    environment = {"diffprune": "0.1.0", "torch": "2.13.0", "date": "2026-11-15"}
    (folder / "environment.json").write_text(json.dumps(environment))
    records = [make_epoch(number, gates) for number in range(1, epochs + 1)]
    write_lines(folder / "metrics.jsonl", records)
    removals = [make_removal(number, gates) for number in range(1, epochs + 1)]
    write_lines(folder / "removals.jsonl", removals if gates else [])
    if finished:
        end = records[-1]
        outcome = Outcome(
            raw=end.raw,
            effective=end.effective,
            parameters=end.parameters if gates else 40_000,
            macs=end.macs if gates else 2_000_000,
            validation_error=None,
            test_error=end.test_error,
            seconds=9.0,
        )
        (folder / "summary.json").write_text(json.dumps(outcome.to_dict()))
        (folder / "model.safetensors").write_bytes(bytes(1_234))
    return folder


@pytest.fixture(scope="session")
def write_run():
    """Writes a run folder anywhere."""
    return _write_run


@pytest.fixture
def make_run(tmp_path):
    """Writes a run folder under a temporary directory."""
    return lambda name, **options: _write_run(tmp_path / "runs" / name, **options)


@pytest.fixture
def no_vega(monkeypatch):
    """Leave the bundle out that takes seconds to make; browsers need it, tests not."""
    vl_convert = pytest.importorskip("vl_convert", reason="reports are drawn with it")
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda _: "/* vega */")

import pytest
from rich.console import Console

from diffprune.errors import ArgumentError
from diffprune.lab import Recipe, read_run
from diffprune.lab.sweeps import sweep, workers as run

pytest.importorskip("optuna")

TASK = """
import torch
from torch import nn
from diffprune.lab import Task
from diffprune.lab.image_batches import Batches, Examples


def make(recipe):
    inputs = torch.randn(48, 4, generator=torch.Generator().manual_seed(1))
    data = Examples(inputs, (inputs.sum(dim=1) > 0).long())
    batches = Batches(data, recipe.batch_size, shuffle=True)
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    return Task(model=model, train=batches, test=Batches(data, 48))
"""
RECIPE = Recipe(name="toy", epochs=2, batch_size=8, lr=1e-2)


@pytest.fixture
def task(tmp_path):
    (tmp_path / "toy.py").write_text(TASK)
    return f"{tmp_path / 'toy.py'}:make"


def test_every_value_is_a_run_and_the_front_shows_them(task, tmp_path):
    out = tmp_path / "sweep"
    front = sweep(task, {"macs": [0.25, 0.5]}, out=out, recipe=RECIPE)
    assert [run.name for run in front.runs] == ["macs=0.5", "macs=0.25"]
    assert [run.outcome.macs for run in front.runs] == [96, 48]
    assert "macs=0.25" in front.best
    assert [row["is_best"] for row in front.to_dict()][-1]
    assert read_run(out / "macs=0.5").recipe.budget == {"macs": 0.5}
    console = Console(width=100, record=True)
    console.print(front.table())
    assert "macs=0.25" in console.export_text()


def test_the_figure_names_every_run(task, tmp_path):
    pytest.importorskip("altair")
    front = sweep(task, {"macs": [0.5]}, out=tmp_path / "sweep", recipe=RECIPE)
    front.figure(tmp_path / "front.svg")
    assert "macs=0.5" in (tmp_path / "front.svg").read_text()


def test_what_is_finished_is_not_trained_again(task, tmp_path, monkeypatch):
    out = tmp_path / "sweep"
    sweep(task, {"macs": [0.5]}, out=out, recipe=RECIPE)
    trained = []

    def spy(make_task, recipe, **options):
        trained.append(recipe.budget)
        return run_train(make_task, recipe, **options)

    run_train = run.train
    monkeypatch.setattr(run, "train", spy)
    front = sweep(task, {"macs": [0.5, 0.3]}, out=out, recipe=RECIPE)
    assert trained == [{"macs": 0.3}]
    assert len(front.runs) == 2


def test_a_run_that_fails_is_told_and_can_be_repeated(task, tmp_path, monkeypatch):
    def fail(*_args, **_options):
        raise RuntimeError("no")

    with monkeypatch.context() as broken:
        broken.setattr(run, "train", fail)
        with pytest.raises(RuntimeError, match="no"):
            sweep(task, {"macs": [0.5]}, out=tmp_path / "sweep", recipe=RECIPE)
    front = sweep(task, {"macs": [0.5]}, out=tmp_path / "sweep", recipe=RECIPE)
    assert len(front.runs) == 1


def test_somebody_has_to_do_it(task, tmp_path):
    with pytest.raises(ArgumentError, match=r"workers must be .* at least 1, got 0"):
        sweep(task, {"macs": [0.5]}, out=tmp_path, workers=0)


@pytest.mark.slow
def test_workers_share_the_points(task, tmp_path):
    values = [0.6, 0.5, 0.4]
    front = sweep(
        task, {"macs": values}, out=tmp_path / "sweep", recipe=RECIPE, workers=2
    )
    assert [run.name for run in front.runs] == [f"macs={value}" for value in values]

"""Running systems: where, resumed how, and from which weights."""

import pytest
import torch

from diffprune.lab import read_run
from diffprune.lab.digits import load_digits
from diffprune.lab.image_batches import Split
from paper.comparison import run
from paper.comparison.systems import METHODS
from paper.models.lenet5 import LeNet5
from paper.records import read_records


@pytest.fixture
def folders(monkeypatch, tmp_path):
    digits = load_digits()
    few = Split(digits.train.take(torch.arange(200)), None, digits.test)
    monkeypatch.setattr(run, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(run, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(run, "load_mnist", lambda: few)
    return tmp_path


def test_what_continues_from_the_dense_network_has_it_trained_first(folders, paper):
    done = paper("table1", "--run", "--methods", "sbp", "--epochs", "1")
    assert done.exit_code == 0, done.stderr
    said = done.stderr.replace("\n", "")
    assert f"Training in {folders / 'runs/dense-1-seed0'}." in said
    assert f"Record written to {folders / 'records/sbp-1-seed0'}." in said
    names = [found.recipe.name for found in read_records(folders / "records", "")]
    assert names == ["dense", "sbp"]
    before = read_run(folders / "runs/sbp-1-seed0")
    again = paper("table1", "--run", "--methods", "sbp", "--epochs", "1")
    assert "Training in" not in again.stderr
    assert read_run(folders / "runs/sbp-1-seed0") == before


def test_the_weights_of_the_dense_network_are_the_start(folders):
    run.train(["dense"], seeds=1, epochs=1)
    recipe = METHODS["gl-literal"].asked(0, 1)
    started = run.task(recipe).model
    dense = run.dp.load_pruned(LeNet5(), folders / "runs/dense-1-seed0")
    for name, weights in dense.named_parameters():
        assert torch.equal(started.get_parameter(name), weights)


def test_runs_of_several_lengths_and_seeds_do_not_collide():
    made = [METHODS["l0"].asked(seed, n) for seed in (0, 1) for n in (4, 200)]
    assert len({run.folder_name(recipe) for recipe in made}) == len(made)

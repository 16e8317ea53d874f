from dataclasses import replace

import pytest
from rich.console import Console

from diffprune.errors import ArgumentError
from diffprune.lab import read_run, train
from paper.reproduce import EXPERIMENTS, folder_name, read_records, write_record


@pytest.fixture(scope="module")
def run(toy, recipe, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "toy"
    train(toy, replace(recipe, epochs=1), out=out)
    return out


def test_a_record_is_the_run_without_what_is_heavy(run, tmp_path):
    write_record(run, tmp_path / "toy")
    whole, (kept,) = read_run(run), read_records(tmp_path)
    assert kept.outcome == whole.outcome
    assert kept.removals == whole.removals
    assert kept.epochs == tuple(replace(e, prob_open={}) for e in whole.epochs)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_without_records_the_message_says_how_to_make_some(tmp_path):
    with pytest.raises(ArgumentError, match="diffprune reproduce wrn --run"):
        read_records(tmp_path / "wrn")


def test_every_experiment_prints_a_table_of_its_runs(run):
    for experiment in EXPERIMENTS.values():
        done = replace(read_run(run), recipe=experiment.recipes[0](0))
        console = Console(record=True, width=80)
        console.print(experiment.table([done]))
        assert f"{done.epochs[-1].test_error:.2f}" in console.export_text()


def test_every_run_of_an_experiment_has_a_folder_of_its_own():
    for experiment in EXPERIMENTS.values():
        recipes = [make(seed) for make in experiment.recipes for seed in range(2)]
        assert len({folder_name(recipe) for recipe in recipes}) == len(recipes)

from dataclasses import replace

import pytest
from rich.console import Console

from diffprune.errors import ArgumentError
from diffprune.experiment import read_run, train
from diffprune.experiment.builtin import table1_sigmoid, table1_softmax
from diffprune.experiment.reproduce import (
    TABLE1,
    folder_name,
    read_records,
    table1,
    write_record,
)


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
    with pytest.raises(ArgumentError, match="diffprune reproduce lenet5 --run"):
        read_records(tmp_path)


def test_the_table_shows_ours_under_the_papers_row(run):
    done = read_run(run)
    half = replace(done, recipe=table1_sigmoid(0), outcome=None)
    runs = [replace(done, recipe=table1_sigmoid(7)), half]
    console = Console(record=True, width=80)
    console.print(table1(runs))
    lines = console.export_text().splitlines()
    (paper,) = [n for n, line in enumerate(lines) if "10-20-71-35" in line]
    assert "seed 7" in lines[paper + 1]
    assert "11-30-496-309" in "".join(lines)
    assert "1/200" in lines[paper + 2]
    assert f"{done.epochs[-1].test_error:.2f}" in lines[paper + 3]


def test_the_recipes_are_those_of_the_paper():
    assert [row.recipe for row in TABLE1] == [table1_softmax, table1_sigmoid]
    softmax, sigmoid = table1_softmax(4), table1_sigmoid(4)
    for recipe in (softmax, sigmoid):
        assert (recipe.epochs, recipe.batch_size, recipe.lr) == (200, 100, 5e-4)
        assert recipe.seed == 4
    assert folder_name(sigmoid) == "lenet5-sigmoid-seed4"
    assert (softmax.gate.u, softmax.strength) == ("softmax", 0.0)
    assert softmax.gate.make(3).log_noise_var.item() == pytest.approx(0)
    assert sigmoid.gate.make(3).log_noise_var.item() == pytest.approx(-1.734, abs=1e-3)
    assert list(sigmoid.strength.values()) == [1e-5, 1e-5, 2e-5, 2e-5]

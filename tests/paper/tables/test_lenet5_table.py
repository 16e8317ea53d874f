from dataclasses import replace

import pytest

from diffprune import Gate
from paper.lenet5_recipes import (
    table1_dense,
    table1_sigmoid,
    table1_sigmoid_held,
    table1_sigmoid_kept,
    table1_softmax,
    table1_softmax_held,
    table1_teacher,
)  # fmt: skip
from paper.tables.lenet5_table import REMEDIES, TABLE1, lenet5_table


def test_the_table_shows_ours_under_the_papers_row(done, lines_of):
    half = replace(done, recipe=table1_sigmoid(0), outcome=None)
    runs = [replace(done, recipe=table1_sigmoid(7)), half]
    lines = lines_of(lenet5_table(runs))
    (paper,) = [n for n, line in enumerate(lines) if "10-20-71-35" in line]
    assert "seed 7" in lines[paper + 1]
    assert "11-30-496-309" in "".join(lines)
    assert "1/200" in lines[paper + 2]
    assert f"{done.epochs[-1].test_error:.2f}" in lines[paper + 3]


def test_runs_stand_there_again_when_they_are_no_larger_than_the_papers(done, lines_of):
    (epoch,) = done.epochs
    sizes = [(9_000, 1_000), (8_160, 999_000), (8_160, 466_000), (10, 10)]
    epochs = tuple(
        replace(epoch, number=n, test_error=n + 0.5, parameters=parameters, macs=macs)
        for n, (parameters, macs) in enumerate(sizes, 1)
    )
    runs = [replace(done, recipe=table1_sigmoid(s), epochs=epochs) for s in range(2)]
    lines = lines_of(lenet5_table(runs))
    (title,) = [n for n, line in enumerate(lines) if "as small" in line]
    assert all("3.50" in line for line in lines[title + 1 : title + 4])
    assert all("3/200" in line for line in lines[title + 1 : title + 3])
    large = replace(runs[0], epochs=epochs[:1])
    assert "as small" not in "".join(lines_of(lenet5_table([large])))


def test_the_recipes_are_those_of_the_paper():
    assert [row.recipe for row in TABLE1] == [table1_softmax, table1_sigmoid]
    softmax, sigmoid = table1_softmax(4), table1_sigmoid(4)
    for recipe in (softmax, sigmoid):
        assert (recipe.epochs, recipe.batch_size, recipe.lr) == (200, 100, 5e-4)
        assert recipe.seed == 4
    assert (softmax.gate["u"], softmax.strength) == ("softmax", 0.0)
    assert Gate(3, **softmax.gate).log_noise_var.item() == pytest.approx(0)
    assert Gate(3, **sigmoid.gate).log_noise_var.item() == pytest.approx(
        -1.734, abs=1e-3
    )
    assert list(sigmoid.strength.values()) == [1e-5, 1e-5, 2e-5, 2e-5]


def test_what_keeps_its_units_stands_beside_what_lost_them(done, lines_of):
    (epoch,) = done.epochs
    early = replace(
        epoch, number=1, test_error=7.5, macs=1_234_000, processor_seconds=12.0
    )
    late = replace(epoch, number=2, test_error=6.5)
    removed = replace(done, recipe=table1_sigmoid(3), epochs=(early, late))
    kept = replace(early, test_error=7.25, macs=2_293_000, processor_seconds=99.0)
    whole = replace(done, recipe=table1_sigmoid_kept(3), epochs=(kept,), outcome=None)
    other = replace(removed, recipe=table1_sigmoid(4))
    lines = lines_of(lenet5_table([removed, other, whole]))
    (title,) = [n for n, line in enumerate(lines) if "all kept" in line]
    assert all(text in lines[title + 1] for text in ("7.25", "2.29M", "1/200", "99"))
    assert all(text in lines[title + 2] for text in ("removed", "7.50", "1.23M"))
    assert "seed" not in lines[title + 3]
    assert "reg, seed 3: 99 s in all, and 12 s with live removal" in lines[-1]


def test_a_run_that_did_not_come_as_far_is_not_compared(done, lines_of):
    (epoch,) = done.epochs
    removed = replace(done, recipe=table1_sigmoid(3))
    twice = (epoch, replace(epoch, number=2))
    whole = replace(done, recipe=table1_sigmoid_kept(3), epochs=twice)
    assert not any(
        "removed" in line for line in lines_of(lenet5_table([removed, whole]))
    )


def test_a_run_that_keeps_its_units_differs_in_nothing_else():
    kept = table1_sigmoid_kept(5)
    same = replace(kept, name="lenet5-sigmoid", pruner={})
    assert same == table1_sigmoid(5)


@pytest.mark.parametrize(
    ("held", "papers"),
    [(table1_sigmoid_held, table1_sigmoid), (table1_softmax_held, table1_softmax)],
)
def test_a_run_that_holds_its_gates_differs_in_its_length_and_rate(held, papers):
    recipe = held(5)
    same = {"epochs": 200, "decay": "constant", "decay_after": ()}
    assert replace(recipe, name=papers(5).name, **same) == papers(5)
    (falls,) = recipe.decay_after
    assert recipe.lr_factor(falls) == 1.0 > recipe.lr_factor(falls + 1)


@pytest.mark.parametrize(
    ("make_recipe", "name"), [(table1_dense, "dense"), (table1_teacher, "teacher")]
)
def test_dense_networks_stand_above_with_their_mean(done, lines_of, make_recipe, name):
    (epoch,) = done.epochs
    runs = [
        replace(
            done,
            recipe=make_recipe(seed),
            epochs=(replace(epoch, test_error=seed + 0.5, raw={}, effective={}),),
            outcome=None,
        )
        for seed in range(2)
    ]
    lines = lines_of(lenet5_table(runs))
    (dense,) = [n for n, line in enumerate(lines) if "20-50-800-500" in line]
    assert "2.29M" in lines[dense]
    assert name in lines[dense]
    assert "0.50" in lines[dense + 1]
    assert "1.50" in lines[dense + 2]
    assert "1.00" in lines[dense + 3]


def test_the_dense_run_differs_in_its_gates_alone():
    dense, softmax = table1_dense(5), table1_softmax(5)
    assert dense.strength is None
    same = replace(dense, name=softmax.name, gate=softmax.gate, strength=0.0)
    assert same == softmax


@pytest.mark.parametrize("name", REMEDIES)
def test_runs_in_which_closing_ends_stand_below_the_papers_rows(done, lines_of, name):
    (epoch,) = done.epochs
    runs = [
        replace(
            done,
            recipe=REMEDIES[name](seed),
            epochs=(replace(epoch, test_error=seed + 0.5),),
        )
        for seed in range(2)
    ]
    lines = lines_of(lenet5_table(runs))
    (title,) = [n for n, line in enumerate(lines) if name in line]
    (paper,) = [n for n, line in enumerate(lines) if "10-20-71-35" in line]
    assert paper < title
    assert "0.50" in lines[title + 1]
    assert "1.50" in lines[title + 2]
    assert "1.00" in lines[title + 3]

"""What is published and what was run here stand together, in the right cells."""

from dataclasses import replace

import pytest

from paper.comparison.systems import ALL, METHODS
from paper.lenet5_recipes import table1_dense, table1_sigmoid
from paper.models.lenet5 import PLACES
from paper.tables.comparison_table import comparison_table, results


@pytest.fixture
def make(done):
    """From a recipe to a finished run of it, with widths of a LeNet-5."""

    def make(recipe, widths=(5, 10, 76, 16), error=2.5):
        units = dict(zip(PLACES, widths, strict=True)) if widths else {}
        (epoch,) = done.epochs
        return replace(
            done,
            recipe=recipe,
            epochs=(replace(epoch, test_error=error, processor_seconds=41.6),),
            outcome=replace(done.outcome, raw=units, effective=units),
        )

    return make


def test_a_run_stands_below_what_is_published(make, lines_of):
    lines = lines_of(comparison_table([make(METHODS["bc-ghs"].asked(3, 4))]), 130)
    (published,) = [n for n, line in enumerate(lines) if "BC-GHS " in line]
    assert "5-10-76-16" in lines[published]
    ours = lines[published + 1]
    assert all(
        text in ours for text in ("seed 3", "2,751", "153,376", "2.50", "4", "42")
    )


def test_seeds_of_one_length_have_a_mean(make, lines_of):
    l0 = METHODS["l0"].asked
    runs = [make(l0(0, 4), error=2.0), make(l0(1, 4), error=3.0), make(l0(0, 6))]
    lines = lines_of(comparison_table(runs), 130)
    (mean,) = [line for line in lines if "mean, " in line]
    assert mean.split() == ["mean,", "4", "epochs", "2.50"]


def test_every_system_has_its_section(make, lines_of):
    text = "\n".join(lines_of(comparison_table([make(METHODS["l0"].asked(0, 4))]), 130))
    assert all(method.label in text for method in ALL)
    assert "reconstruction" in text


def test_runs_of_two_hundred_epochs_count_as_well(make):
    runs = [make(table1_sigmoid(1)), make(METHODS["diffprune-reg"].asked(0, 4))]
    found = results(runs)["DiffPrune reg"]
    assert [(r.where, r.epochs) for r in found] == [
        ("published", 0), ("here", 4), ("here", 200)
    ]  # fmt: skip


def test_the_dense_network_of_two_hundred_epochs_counts_as_well(make):
    runs = [make(table1_dense(), widths=()), make(METHODS["dense"].asked(0, 4), ())]
    assert [r.epochs for r in results(runs)["dense"]] == [4, 200]


def test_a_network_without_gates_has_all_its_weights(make):
    (dense,) = results([make(METHODS["dense"].asked(0, 4), widths=())])["dense"]
    assert (dense.widths.weights, dense.open_gates) == (430_500, "")


def test_an_unfinished_run_is_left_out(make):
    half = replace(make(METHODS["l0"].asked(0, 4)), outcome=None)
    assert [r.where for r in results([half])["L0"]] == ["published"]

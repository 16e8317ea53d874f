from dataclasses import replace

import pytest

from diffprune.lab import Recipe
from diffprune.lab.report import text as words
from diffprune.lab.report.networks import Network
from diffprune.lab.runs.records import read_runs

DENSE = Network(name="dense", error=2.0, parameters=40_000, macs=2_000_000)
SMALL = Network(name="small", error=2.0, parameters=10_000, macs=500_000, seconds=1e-3)


@pytest.mark.parametrize(
    ("dense", "error", "count", "headline"),
    [
        (DENSE, 2.0, 1, "The same test error with 25 % of the multiply-adds."),
        (
            DENSE,
            3.0,
            1,
            "3.00 % test error (dense 2.00 %) with 25 % of the multiply-adds.",
        ),
        (Network(name="dense"), 3.0, 1, "3.00 % test error with 500k multiply-adds."),
        (
            DENSE,
            2.0,
            3,
            "small, smallest of 3: the same test error with 25 % of the multiply-adds.",
        ),
    ],
)
def test_the_headline_says_what_came_out(dense, error, count, headline):
    small = Network(name="small", error=error, macs=500_000)
    assert words.headline(small, dense, count) == headline


@pytest.mark.parametrize(
    ("before", "after", "examples", "words_of"),
    [
        (1.75, 10.3, 300, "Test error rose from 1.75 % to 10.30 % with 25 %"),
        (2.0, 2.67, 300, "2.67 % test error (dense 2.00 %, within chance) with"),
        (2.0, 2.67, 30_000, "Test error rose from 2.00 % to 2.67 %"),
        (2.67, 2.0, 300, "2.00 % test error (dense 2.67 %) with"),
        (2.0, 10.0, None, "10.00 % test error (dense 2.00 %) with"),
    ],
)
def test_a_loss_of_accuracy_comes_first(before, after, examples, words_of):
    dense = replace(DENSE, error=before, examples=examples)
    small = replace(SMALL, error=after, examples=examples)
    assert words.headline(small, dense, 1).startswith(words_of)
    is_warned = words.warning(small, dense) is not None
    assert is_warned == words_of.startswith("Test error rose")


def test_an_error_has_an_uncertainty_where_its_examples_are_known():
    cells = words.comparison(DENSE, [replace(SMALL, examples=300)]).rows["Test error"]
    assert [cell.value for cell in cells] == ["2.00 %", "2.00 ± 0.87 %"]


def test_a_page_is_called_after_what_it_shows():
    assert words.title([SMALL], DENSE) == "small: 25 % of the multiply-adds"
    assert words.title([SMALL], Network(name="dense")) == "small"
    two = [SMALL, replace(SMALL, name="other")]
    assert words.title(two, DENSE) == "2 runs compared: small, other"


def test_what_was_asked_and_how_far_it_is(make_run):
    longer = Recipe(name="b", epochs=9, strength=1e-5)
    folders = [
        make_run("a"),
        make_run("b", finished=False, recipe=longer),
        make_run("c", gates={}),
        make_run("d", recipe=Recipe(name="d", epochs=4, budget={"macs": 0.3})),
        make_run("e", recipe=Recipe(name="e", epochs=4, strength={"conv*": 1e-3})),
    ]
    asked = [words.asked(run) for run in read_runs(folders)]
    assert asked == [
        "Asked for: gates with strength 0.0001, 4 epochs, seed 0.",
        "Asked for: gates with strength 1e-05, 9 epochs, 4 so far, seed 0.",
        "Asked for: no gates, 4 epochs, seed 0.",
        "Asked for: a budget of macs=0.3, 4 epochs, seed 0.",
        "Asked for: gates with a strength for each, 4 epochs, seed 0.",
    ]


def test_what_came_out_is_compared_with_what_is_known():
    assert words.got(SMALL, DENSE) == (
        "The network has 10,000 parameters, 25 % of the dense one's, and is "
        "wrong on 2.00 % of the test set; the dense one is wrong on 2.00 %."
    )
    assert words.got(SMALL, Network(name="dense")) == (
        "The network has 10,000 parameters, and is wrong on 2.00 % of the test set."
    )


def test_cells_have_a_share_where_both_sides_are_known():
    rows = words.comparison(DENSE, [SMALL]).rows
    assert rows["Parameters"] == (("40,000", "100 %"), ("10,000", "25 %"))
    assert rows["Latency"] == (("not measured", ""), ("1 ms", ""))
    assert rows["File size"] == (("not recorded", ""), ("not recorded", ""))
    assert rows["Test error"] == (("2.00 %", ""), ("2.00 %", ""))


def test_tiles_leave_out_what_is_not_known():
    assert [tile.label for tile in words.tiles(SMALL, DENSE)] == [
        "fewer multiply-adds",
        "fewer parameters",
        "test error",
    ]
    assert words.tiles(SMALL, DENSE)[0].value == "4.0×"  # noqa: RUF001 - a sign

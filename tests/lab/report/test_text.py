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


def test_what_was_asked_and_how_far_it_is(make_run):
    longer = Recipe(name="b", epochs=9)
    folders = [
        make_run("a"),
        make_run("b", finished=False, recipe=longer),
        make_run("c", gates={}),
        make_run("d", recipe=Recipe(name="d", epochs=4, budget={"macs": 0.3})),
        make_run("e", recipe=Recipe(name="e", epochs=4, strength={"conv*": 1e-3})),
    ]
    asked = [words.asked(run) for run in read_runs(folders)]
    assert asked == [
        "Asked for: sigmoid gates with strength 0.0001, 4 epochs, seed 0.",
        "Asked for: sigmoid gates with strength 1e-05, 9 epochs, 4 so far, seed 0.",
        "Asked for: no gates, 4 epochs, seed 0.",
        "Asked for: sigmoid gates within a budget of macs=0.3, 4 epochs, seed 0.",
        "Asked for: sigmoid gates with a strength for each, 4 epochs, seed 0.",
    ]


def test_what_came_out_is_compared_with_what_is_known():
    assert words.got(SMALL, DENSE) == (
        "What came out has 10,000 parameters, 25 % of what there was, and errs on "
        "2.00 % of the test set; the dense one errs on 2.00 %."
    )
    assert words.got(SMALL, Network(name="dense")) == (
        "What came out has 10,000 parameters, and errs on 2.00 % of the test set."
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

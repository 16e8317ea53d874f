import pytest

from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.lab import Recipe, Search
from diffprune.lab.sweeps.search import Range, read_ranges

RECIPE = Recipe(name="toy", epochs=3, budget={"macs": 0.5})


def test_amounts_are_searched_in_the_unit_of_their_lower_end():
    ranges = {"latency": ("500 us", "2ms"), "size": ("9.5kB", "1 MB"), "macs": (0.1, 1)}
    assert Search(ranges=ranges).read() == {
        "latency": Range(500.0, pytest.approx(2000.0), "us"),
        "size": Range(9.5, pytest.approx(1000.0), "kB"),
        "macs": Range(0.1, 1.0),
    }
    values = {"latency": 812.3456789, "macs": 0.3}
    (recipe,) = Search(ranges=ranges).recipes(RECIPE, "a", values).values()
    assert recipe.budget == {"latency": "812.346 us", "macs": 0.3}


def test_a_strength_takes_the_place_of_a_budget_and_other_numbers_do_not():
    search = Search(ranges={"strength": (1e-5, 1e-2), "gate_lr": (1e-3, 1e-1)})
    values = {"strength": 1e-3, "gate_lr": 1e-2}
    (recipe,) = search.recipes(RECIPE, "a", values).values()
    assert (recipe.strength, recipe.gate_lr, recipe.budget) == (1e-3, 1e-2, None)
    (recipe,) = search.recipes(RECIPE, "a", {"gate_lr": 1e-2}).values()
    assert (recipe.gate_lr, recipe.budget) == (1e-2, {"macs": 0.5})


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({}, "needs ranges to look in"),
        ({"macs": (0.5, 0.5)}, r"macs=0.5..0.5 is empty.*--vary macs=0.5"),
        ({"macs": (0.5, 0.1)}, r"reversed: type `--search macs=0.1..0.5`"),
        ({"latency": ("5ms", "900us")}, r"type `--search latency=900us..5ms`"),
        ({"strength": (0.0, 1.0)}, r"log scale: type .* `--search strength=1e-6..1.0`"),
        ({"strength": (-1.0, 1.0)}, "at least 0"),
        ({"strength": (1e-3, float("inf"))}, "finite number"),
        ({"lr": ("1ms", "2ms")}, "lr has no units"),
        ({"macs": (0.5, "2 M")}, "a unit at one end"),
        ({"macs": (0.5, 2e6)}, "mixes a fraction"),
        ({"latency": ("1 parsec", "2 parsec")}, "no amount of latency"),
        ({"macs": (0.1, 0.5), "strength": (1e-3, 1e-2)}, "or `strength`, not both"),
    ],
)
def test_ranges_that_cannot_be_meant_are_refused(ranges, message):
    with pytest.raises(ArgumentError, match=message):
        Search(ranges=ranges)


@pytest.mark.parametrize("name", ["mac", "pretrained", "epochs", "budget"])
def test_unknown_names_are_refused_with_those_there_are(name):
    with pytest.raises(UnknownNameError, match=r"there are macs, .* strength, gate_lr"):
        Search(ranges={name: (0.1, 0.5)})


def test_goals_are_checked():
    ranges = {"macs": (0.1, 0.5)}
    with pytest.raises(UnknownNameError, match="goal `speed`; there are `error`"):
        Search(ranges=ranges, goals=("error", "speed"))
    with pytest.raises(ArgumentError, match="needs a goal"):
        Search(ranges=ranges, goals=())
    with pytest.raises(ArgumentError, match="counts once"):
        Search(ranges=ranges, goals=("error", "error"))


def test_pruning_trials_with_several_goals_is_refused_with_what_to_type():
    with pytest.raises(
        ArgumentError, match=r"one goal only.*Optuna(.|\n)*--goal error"
    ):
        Search(ranges={"macs": (0.1, 0.5)}, prune=True)


@pytest.mark.parametrize("word", ["macs", "macs=", "=1..2", "macs=1", "macs=1..", ".."])
def test_what_is_no_range_is_said(word):
    with pytest.raises(ArgumentError, match=r"is no range: type `--search .*LOW\.\.HI"):
        read_ranges([word])


def test_a_range_is_given_once():
    with pytest.raises(ArgumentError, match="`lr` has two ranges"):
        read_ranges(["lr=1e-3..1", "lr=1e-2..1"])

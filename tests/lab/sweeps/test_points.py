import pytest

from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.lab import Recipe
from diffprune.lab.sweeps.points import make_points

RECIPE = Recipe(name="toy", epochs=3)


def test_limits_become_budgets_and_numbers_stay_numbers():
    vary = {"macs": [0.5], "latency": ["5 ms"], "strength": [1e-3]}
    one, two, three = make_points(RECIPE, vary)
    assert one.recipe.budget == {"macs": 0.5}
    assert (two.name, two.recipe.budget) == ("latency=5ms", {"latency": "5 ms"})
    assert (three.recipe.strength, three.recipe.budget) == (1e-3, None)


def test_nothing_to_vary_is_refused():
    with pytest.raises(ArgumentError, match="needs values to go through"):
        make_points(RECIPE, {"macs": []})


def test_unknown_names_are_refused_with_those_there_are():
    with pytest.raises(
        UnknownNameError, match="vary `mac`; there are macs, parameters"
    ):
        make_points(RECIPE, {"mac": [0.5]})


def test_values_are_checked_before_anything_is_trained():
    with pytest.raises(ArgumentError, match="macs=-1 cannot be met"):
        make_points(RECIPE, {"macs": [0.5, -1]})

import json
from dataclasses import FrozenInstanceError, replace

import pytest

from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.lab import Recipe
from diffprune.lab.digits import digits_recipe
from diffprune.lab.training.recipe import check_recipe

SHORT = Recipe(name="short", epochs=10)


@pytest.mark.parametrize(
    "recipe",
    [
        digits_recipe(2),
        replace(SHORT, gate={"u": "softmax", "dropout": 0.5}),
        replace(SHORT, strength={"conv*": 1e-5, "fc": 2e-5}),
        replace(SHORT, decay="steps", decay_after=(3, 6), strength=None),
    ],
)
def test_a_recipe_survives_json(recipe):
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


def test_a_recipe_is_frozen():
    with pytest.raises(FrozenInstanceError):
        SHORT.lr = 1.0


@pytest.mark.parametrize(
    ("changes", "factors"),
    [
        ({}, [1, 1, 1, 1]),
        ({"decay": "cosine"}, [1, 0.79389, 0.34549, 0.02447]),
        ({"decay": "linear"}, [1, 0.7, 0.4, 0.1]),
        ({"decay": "linear", "decay_after": (6,)}, [1, 1, 1, 0.25]),
        ({"decay": "linear", "decay_after": (10,)}, [1, 1, 1, 1]),
        ({"decay": "linear", "decay_after": (15,)}, [1, 1, 1, 1]),
        ({"decay": "steps", "decay_after": (3, 9)}, [1, 0.2, 0.2, 0.04]),
        (
            {"decay": "steps", "decay_after": (4,), "decay_factor": 0.5},
            [1, 1, 0.5, 0.5],
        ),
    ],
)
def test_learning_rates_fall_as_asked(changes, factors):
    recipe = replace(SHORT, **changes)
    found = [recipe.lr_factor(epoch) for epoch in (0, 3, 6, 9)]
    assert found == pytest.approx(factors, abs=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, r"at least one epoch, got 0\.\nType `--epochs 1`"),
        ({"batch_size": 0}, "at least 1, got 0"),
    ],
)
def test_impossible_numbers_are_refused(changes, message):
    with pytest.raises(ArgumentError, match=message):
        replace(SHORT, **changes)


def test_a_recipe_is_pressed_by_a_strength_or_a_budget():
    with pytest.raises(ArgumentError, match="`strength=` or `budget=`, not both"):
        replace(SHORT, strength=1e-4, budget={"macs": 0.5})


def test_without_either_it_is_dense():
    assert SHORT.is_dense
    assert not replace(SHORT, strength=0.0).is_dense
    pressed = replace(SHORT, budget={"macs": 0.5}, pruner={"round_to": 8})
    assert not pressed.is_dense
    assert pressed.as_dense() == replace(SHORT, pruner={"round_to": 8})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pruner": {"round_too": 8}}, "no option `round_too`; there are .*`round_to`"),
        ({"pruner": {"strength": 1.0}}, "no option `strength`"),
        ({"budget": {"mcas": 0.5}}, "cannot limit `mcas`; there are `macs`"),
    ],
)
def test_names_that_lead_nowhere_are_refused_before_training(changes, message):
    recipe = replace(SHORT, **changes)
    with pytest.raises(UnknownNameError, match=message):
        check_recipe(recipe)

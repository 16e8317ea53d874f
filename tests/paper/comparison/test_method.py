"""Published recipes, and shorter ones made of them."""

from dataclasses import replace

import pytest

from diffprune.lab import Recipe
from paper.comparison.method import FASTEST, Method, always, ramp, until
from paper.models.lenet5 import LeNet5

RECIPE = Recipe(
    name="one", epochs=200, lr=5e-4, decay="steps", decay_after=(100, 140), strength=1.0
)
METHOD = Method(label="One", recipe=RECIPE, model=lambda _: LeNet5(), training=None)


def test_the_published_recipe_is_the_default():
    assert METHOD.asked(7) == replace(RECIPE, seed=7, gate_lr=5e-4)
    assert METHOD.hurry(200) == 1.0


def test_a_shorter_run_keeps_shares_and_hurries_its_gates():
    short = METHOD.asked(0, 20)
    assert (short.epochs, short.decay_after, short.lr) == (20, (10, 14), 5e-4)
    assert short.gate_lr == pytest.approx(5e-3)
    assert METHOD.asked(0, 100).gate_lr == pytest.approx(1e-3)
    assert METHOD.asked(0, 10_000).epochs == RECIPE.epochs  # never longer


def test_nobody_hurries_beyond_the_limits():
    assert METHOD.asked(0, 1).gate_lr == pytest.approx(5e-3)
    fast = replace(METHOD, recipe=replace(RECIPE, gate_lr=4e-3))
    assert fast.asked(0, 1).gate_lr == FASTEST
    faster = replace(METHOD, recipe=replace(RECIPE, gate_lr=0.05))
    assert faster.asked(0, 1).gate_lr == 0.05
    assert METHOD.hurry(400) == 1.0
    assert replace(METHOD, hurries=False).asked(0, 1).gate_lr == 5e-4


def test_pressures():
    assert [always(at) for at in (0.0, 1.0)] == [1.0, 1.0]
    assert [ramp(0.2, 0.4)(at) for at in (0.1, 0.3, 0.9)] == pytest.approx([0, 0.5, 1])
    assert [until(0.5)(at) for at in (0.4, 0.5)] == [1.0, 0.0]

from dataclasses import replace

import pytest
import torch

from diffprune.lab.image_batches import Examples, Split
from paper import lenet5_recipes
from paper.lenet5_recipes import (
    lenet5_mnist_held_out,
    table1_sigmoid,
    table1_sigmoid_budget,
    table1_sigmoid_held,
    table1_sigmoid_of_sigma,
)


def test_what_is_chosen_with_never_sees_the_images_of_the_test(monkeypatch):
    def some(label):
        pixels = torch.full((10, 1, 28, 28), label / 10)
        return Examples(pixels, torch.full((10,), label))

    split = Split(some(0), some(1), some(2))
    monkeypatch.setattr(lenet5_recipes, "load_mnist", lambda **_: split)
    task = lenet5_mnist_held_out(table1_sigmoid())
    assert task.validation is None
    assert {int(y) for _, ys in task.test for y in ys} == {1}
    assert {int(y) for _, ys in task.train for y in ys} == {0}


def test_another_sigma_pushes_alike_at_the_threshold():
    usual, narrow = table1_sigmoid(1), table1_sigmoid_of_sigma(1, sigma=0.1)
    for place, strength in usual.strength.items():
        assert narrow.strength[place] / 0.1 == pytest.approx(strength)
    assert narrow.gate == {**usual.gate, "sigma": 0.1}
    same = {"name": usual.name, "gate": usual.gate, "strength": usual.strength}
    assert replace(narrow, **same) == usual


def test_trials_are_the_beginnings_of_longer_runs():
    made = {make(0).name: make(0) for make in lenet5_recipes.TRIALS}
    narrow = table1_sigmoid_of_sigma(sigma=0.1)
    trial = made["lenet5-trial-sigma-0.1"]
    assert replace(trial, name=narrow.name, epochs=narrow.epochs) == narrow
    usual, stays = (
        made["lenet5-trial-softmax"],
        made["lenet5-trial-softmax-noise-stays"],
    )
    assert stays.gate == {**usual.gate, "learn_dropout": False}
    assert replace(stays, name=usual.name, gate=usual.gate) == usual


def test_a_budget_of_lenet5_is_the_papers_size_and_else_as_held_gates():
    recipe, held = table1_sigmoid_budget(1), table1_sigmoid_held(1)
    assert recipe.budget == {"parameters": 8_160, "macs": 466_835}
    same = replace(recipe, name=held.name, budget=None, strength=held.strength)
    assert same == held

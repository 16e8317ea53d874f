"""Strengths that fade, and gates that are held afterwards."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from diffprune import Gate
from diffprune.lab import train
from paper.fading_strengths import Holding, fading_task


@pytest.fixture
def logits(toy, recipe, tmp_path):
    """The logits after each of three epochs; after the first, strengths are gone."""

    def logits(*, hold):
        model = nn.Sequential(
            nn.Linear(4, 16), nn.ReLU(), Gate(16, start="paper"), nn.Linear(16, 2)
        )
        seen = []

        def task(recipe):
            made = replace(toy(recipe), model=model)
            return fading_task(made, recipe, start=0.0, end=1 / 3, hold=hold)

        def note(_):
            seen.append(model[2].logits.detach().clone())

        train(task, recipe, out=tmp_path, on_epoch=note)
        return seen

    return logits


def test_gates_stay_as_they_are_once_they_are_held(logits):
    first, second, third = logits(hold=True)
    assert torch.equal(first, second)
    assert torch.equal(second, third)


def test_gates_go_on_learning_otherwise(logits):
    first, second, third = logits(hold=False)
    assert first.shape != second.shape or not torch.equal(first, second)
    assert second.shape != third.shape or not torch.equal(second, third)


def test_a_state_of_later_holds_gates_at_once():
    def pruner():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), Gate(8), nn.Linear(8, 2))
        return Holding(
            model, torch.rand(2, 4), hold_after=0.5, steps=4, strength=lambda _: 1e-3
        )

    one, other = pruner(), pruner()
    optimizer = torch.optim.SGD(one.parameter_groups(lr=0.1))
    held = []
    for _ in range(3):
        one.step(optimizer)
        held.append(not one.model[2].logits.requires_grad)
    assert held == [False, True, True]
    other.load_state_dict(one.state_dict())
    assert not other.model[2].logits.requires_grad
    assert other.model[0].weight.requires_grad

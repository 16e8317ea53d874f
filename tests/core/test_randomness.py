"""Random generators go on from where they were, or stay as they are."""

import random

import numpy as np
import pytest
import torch
from torch import nn

import diffprune as dp
from diffprune._core.randomness import (
    random_states,
    seed_torch_,
    set_random_states,
    torch_forked,
)


def draw():
    return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002, S311


def test_generators_repeat_themselves():
    states = random_states()
    first = draw()
    set_random_states(states)
    assert draw() == first


@pytest.mark.parametrize("part", ["python", "numpy", "torch"])
def test_damaged_states_change_nothing(part):
    states = {**random_states(), part: ()}
    before = random_states()
    with pytest.raises(ValueError, match="are damaged"):
        set_random_states(states)
    first = draw()
    set_random_states(before)
    assert draw() == first


def test_a_seed_is_that_of_torch():
    torch.manual_seed(7)
    expected = torch.rand(5)
    seed_torch_(7)
    assert torch.equal(torch.rand(5), expected)


class Accelerator:
    """What torch asks of one: two devices, each with a generator that is a number."""

    def __init__(self):
        self.states = [torch.tensor([5]), torch.tensor([6])]
        self.is_used = True

    def is_initialized(self):
        return self.is_used

    def get_rng_state(self, device):
        return self.states[device]

    def set_rng_state(self, state, device):
        self.states[device] = state

    def manual_seed_all(self, seed):
        self.states = [torch.tensor([seed])] * 2


@pytest.fixture
def accelerator(monkeypatch):
    made = Accelerator()
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    monkeypatch.setattr(torch, "get_device_module", lambda *_: made)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", made.manual_seed_all)
    return made


def test_generators_of_accelerators_are_seeded_and_put_back(accelerator):
    with torch_forked():
        seed_torch_(7)
        assert accelerator.states == [7, 7]
    assert accelerator.states == [5, 6]


def test_an_accelerator_that_is_not_used_yet_gets_no_seed(accelerator):
    accelerator.is_used = False
    with torch_forked():
        seed_torch_(7)
    assert accelerator.states == [5, 6]


def test_a_removal_leaves_generators_of_accelerators_as_they_were(accelerator):
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 2))
    dp.remove(model, torch.ones(2, 3), keep={"0": torch.arange(4) > 0})
    assert accelerator.states == [5, 6]


@pytest.mark.usefixtures("accelerator")
def test_a_pruner_of_noisy_gates_looks_at_devices_in_use_alone():
    """Otherwise torch warns of more than one, and wants to begin with all of them."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    noisy = {"*": lambda group: dp.Gate(group.size, dropout=0.1)}
    pruner = dp.Pruner(model, torch.ones(2, 3), strength=1e-3, gate=noisy)
    assert pruner.finalize() is model

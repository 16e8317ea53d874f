"""Random generators go on from where they were, or stay as they are."""

import random

import numpy as np
import pytest
import torch

from diffprune._core.randomness import (
    random_states,
    seed_torch_,
    set_random_states,
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

"""Numbers that cannot be meant are refused by name."""

import math

import numpy as np
import pytest
import torch

from diffprune._core.arguments import count, number, shown
from diffprune.errors import ArgumentError

NO_NUMBERS = [None, True, "3", [3], math.nan, math.inf, -1, torch.ones(2), {}]


@pytest.mark.parametrize("value", [*NO_NUMBERS, 0, 2.0, 2.5])
def test_what_is_no_count_is_refused(value):
    with pytest.raises(ArgumentError, match="steps must be a whole number of at least"):
        count("steps", value)


@pytest.mark.parametrize("value", [*NO_NUMBERS, 1j, 0.6])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ArgumentError, match="lr must be a finite number of at least 0"):
        number("lr", value, most=0.5)


def test_numbers_of_other_kinds_are_numbers():
    assert count("n", np.int64(3)) == 3
    assert number("x", np.float32(0.5)) == 0.5
    assert number("x", 2) == 2.0


def test_of_a_long_dict_the_first_entry_is_shown():
    masks = {"conv1": [True] * 50, "conv2": [False] * 50}
    assert shown(masks) == "a `dict` with a `list` for 'conv1'"
    assert shown({"a": 1}) == "{'a': 1}"

import math

import pytest
import torch
from torch import nn

from diffprune._surgery.changed_numbers import changed_number
from diffprune._surgery.remove import remove
from diffprune.errors import RemovalError


class Scaled(nn.Linear):
    """Weights are divided by the root of their number, where no tracker can see it."""

    def forward(self, x):
        scale = math.sqrt(2.0 / self.weight.shape[1])
        return nn.functional.linear(x, self.weight * scale, self.bias)


def network(width):
    return nn.Sequential(nn.Linear(3, width), nn.Tanh(), Scaled(width, 2))


X = torch.rand(2, 3)


def test_the_number_and_its_line_are_named():
    found = changed_number(network(8), network(2), X)
    assert found.startswith("0.5 becomes 1 in `aten.mul` in `2` (test_numbers.py:")
    assert found.endswith("linear(x, self.weight * scale, self.bias))")


@pytest.mark.parametrize(
    "other", [network(8), nn.Linear(3, 8), nn.Linear(4, 8)], ids=["same", "op", "input"]
)
def test_nothing_is_said_about_anything_else(other):
    assert changed_number(network(8), other, X) is None


def test_a_removal_that_fails_because_of_it_says_so():
    keep = {"0": torch.arange(8) < 2}
    with pytest.raises(RemovalError, match=r"(?s)first in `2`.*: 0.5 becomes 1 in"):
        remove(network(8), X, keep=keep)

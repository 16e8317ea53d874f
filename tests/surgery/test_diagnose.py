import math

import pytest
import torch
from torch import nn

from diffprune._graph import find_groups
from diffprune._surgery.apply import apply_plan
from diffprune._surgery.diagnose import (
    changed_number,
    first_disagreement,
    layout,
    record,
)
from diffprune._surgery.masking import mask
from diffprune._surgery.plan import plan_removal
from diffprune._surgery.remove import remove
from diffprune.errors import RemovalError


class Shared(nn.Module):
    """3 -> fc 5 -> act -> fc 7 -> act (the same module) -> block of fc 7, act -> 2."""

    def __init__(self):
        super().__init__()
        self.act = nn.ReLU()
        self.fc1, self.fc2 = nn.Linear(3, 5), nn.Linear(5, 7)
        self.block = nn.Sequential(nn.Linear(7, 7), nn.ReLU())
        self.head = nn.Linear(7, 2)

    def forward(self, x):
        x = self.act(self.fc2(self.act(self.fc1(x))))
        return self.head(self.block(x))


X = torch.rand(4, 3, dtype=torch.float64)
KEEP = {
    "fc1": torch.tensor([True, False, True, True, False]),
    "fc2": torch.arange(7) < 4,
    "block.0": torch.arange(7) > 1,
}


@pytest.fixture
def three():
    """The masked original, the smaller model and what is kept of every output."""
    model = Shared().double()
    groups = find_groups(model, X)
    small = apply_plan(model, plan_removal(groups, keep=KEEP))
    return mask(model, groups, KEEP), small, layout(groups, KEEP)


def test_modules_are_recorded_in_the_order_they_finish(three):
    found = record(three[0], X)
    paths = ["fc1", "act", "fc2", "act", "block.0", "block.1", "block", "head", ""]
    assert [path for path, _ in found.returned] == paths
    assert ("act", 1) in found.returned
    assert found.running == []


def test_no_hook_is_left(three):
    record(three[0], X)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in three[0].modules())


def test_the_modules_that_did_not_finish_are_known(three):
    _, small, _ = three
    small.block[0] = nn.Linear(6, 7).double()
    assert record(small, X).running == ["", "block", "block.0"]


def test_equal_models_agree_everywhere(three):
    original, small, kept = three
    where = first_disagreement(record(original, X), record(small, X), kept, 1e-10)
    assert where is None


def test_the_layout_knows_every_call(three):
    _, _, kept = three
    assert kept["act", 0][0][1].tolist() == KEEP["fc1"].tolist()
    assert kept["act", 1][0][1].tolist() == KEEP["fc2"].tolist()
    assert kept["block", 0] == kept["block.1", 0]


@pytest.mark.parametrize("path", ["fc1", "fc2", "block.0", "head"])
def test_the_first_changed_module_is_found(three, path):
    original, small, kept = three
    with torch.no_grad():
        small.get_submodule(path).bias += 0.1
        small.head.bias += 0.1
    where = first_disagreement(record(original, X), record(small, X), kept, 1e-10)
    assert where == path


class Scaled(nn.Linear):
    """Weights are divided by the root of their number, where no tracker can see it."""

    def forward(self, x):
        scale = math.sqrt(2.0 / self.weight.shape[1])
        return nn.functional.linear(x, self.weight * scale, self.bias)


def network(width):
    return nn.Sequential(nn.Linear(3, width), nn.Tanh(), Scaled(width, 2))


INPUTS = torch.rand(2, 3)


def test_the_number_and_its_line_are_named():
    found = changed_number(network(8), network(2), INPUTS)
    assert found.startswith("0.5 becomes 1 in `aten.mul` in `2` (test_diagnose.py:")
    assert found.endswith("linear(x, self.weight * scale, self.bias))")


@pytest.mark.parametrize(
    "other", [network(8), nn.Linear(3, 8), nn.Linear(4, 8)], ids=["same", "op", "input"]
)
def test_nothing_is_said_about_anything_else(other):
    assert changed_number(network(8), other, INPUTS) is None


def test_a_removal_that_fails_because_of_it_says_so():
    keep = {"0": torch.arange(8) < 2}
    with pytest.raises(RemovalError, match=r"(?s)first in `2`.*: 0.5 becomes 1 in"):
        remove(network(8), INPUTS, keep=keep)

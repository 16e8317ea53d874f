import pytest
import torch
from torch import nn

from diffprune import find_groups
from diffprune.errors import UnknownNameError


@pytest.fixture
def groups():
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 7), nn.Linear(7, 2))
    return find_groups(model, torch.rand(4, 3))


def test_groups_are_a_sequence(groups):
    assert len(groups) == 2
    assert list(groups) == [groups[0], groups[-1]]
    assert groups[:1] == (groups[0],)


def test_groups_are_found_by_name(groups):
    assert groups["2"] is groups[1]


def test_an_unknown_name_lists_the_groups(groups):
    with pytest.raises(UnknownNameError, match="no group `1`; the groups are `0`, `2`"):
        groups["1"]


def test_a_frozen_name_says_why(groups):
    with pytest.raises(UnknownNameError, match="`3` cannot be cut: an output of the"):
        groups["3"]


def test_costs_follow_the_sizes(groups):
    first = groups["0"].atom
    assert groups.parameters() == (3 + 1) * 5 + (5 + 1) * 7 + (7 + 1) * 2
    assert groups.parameters({first: 4}) == (3 + 1) * 4 + (4 + 1) * 7 + (7 + 1) * 2
    assert groups.macs() == 4 * (3 * 5 + 5 * 7 + 7 * 2)
    assert groups.macs({first: 4}) == 4 * (3 * 4 + 4 * 7 + 7 * 2)

import torch
from torch import nn

from diffprune import find_groups


def places(group):
    return {(axis.tensor, axis.dim): axis for axis in group.axes}


def test_a_group_knows_who_makes_and_who_reads_its_units():
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Conv2d(5, 2, 1))
    (group,) = find_groups(model, torch.rand(2, 3, 6, 6))
    found = places(group)
    assert {place for place, axis in found.items() if axis.is_read} == {("2.weight", 1)}
    assert {tensor for (tensor, _), axis in found.items() if not axis.is_parameter} == {
        "1.running_mean",
        "1.running_var",
    }
    assert group.name == "0"
    assert group.size == 5


def test_the_direction_of_a_normalised_weight_is_marked():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 5))
    (group,) = find_groups(nn.Sequential(layer, nn.Linear(5, 2)), torch.rand(2, 3))
    directions = {axis.tensor for axis in group.axes if axis.is_direction}
    assert directions == {"0.parametrizations.weight.original1"}


def test_a_single_unit_is_no_group():
    model = nn.Sequential(nn.Linear(3, 1), nn.Linear(1, 2))
    assert not len(find_groups(model, torch.rand(2, 3)))

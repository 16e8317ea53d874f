import pytest
import torch
from torch import nn

from diffprune import find_groups, remove
from diffprune.errors import UnknownNameError
from zoo import ZOO

EXPECTED = """\
2 groups in a model of 78 parameters and 256 MACs
group  units  parameters/unit  MACs/unit  where
0          5               11         40  0.weight[0], 0.bias[0], 2.weight[1]
2          7                8         28  2.weight[0], 2.bias[0], 3.weight[1]
frozen:
  0:1 (3 units): an input of the model, or a constant
  3 (2 units): an output of the model"""


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


def test_groups_print_as_a_table():
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 7), nn.Linear(7, 2))
    assert str(find_groups(model, torch.rand(4, 3))) == EXPECTED


def test_many_places_are_cut_short_and_positions_left_out():
    layers = [nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Conv2d(5, 2, 3)]
    text = str(find_groups(nn.Sequential(*layers), torch.rand(2, 3, 8, 8)))
    assert "0.weight[0], 0.bias[0], 1.weight[0] +4" in text
    assert "a position in space" not in text


def test_channels_that_a_convolution_runs_along_are_listed_with_the_reason():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(1, 1, 3, padding=1)

        def forward(self, x):
            pooled = x.mean((2, 3)).unsqueeze(1)
            return x * self.conv(pooled).squeeze(1).sigmoid()[:, :, None, None]

    layers = [nn.Conv2d(3, 5, 3), Attention(), nn.Conv2d(5, 2, 3)]
    text = str(find_groups(nn.Sequential(*layers), torch.rand(2, 3, 8, 8)))
    assert "0 (5 units): its units are used as positions in space or time: " in text
    assert "`aten.conv1d` in `1.conv`" in text


def test_channels_that_are_divided_by_those_beside_them_are_said_to_be_positions():
    layers = [nn.Conv2d(3, 5, 3), nn.LocalResponseNorm(3), nn.Conv2d(5, 2, 3)]
    text = str(find_groups(nn.Sequential(*layers), torch.rand(2, 3, 8, 8)))
    assert "0 (5 units): its units are used as positions in space or time: " in text


def test_groups_that_are_held_stay_as_they_are(groups):
    shown, sizes = str(groups), groups.sizes
    smaller = groups.keep({"0": torch.arange(5) < 2})
    assert (str(groups), groups.sizes) == (shown, sizes)
    assert smaller.sizes == {"0": 2, "2": 7}
    assert smaller["2"].parameters == 1 + 2 + 2
    assert smaller.macs() == 4 * (3 * 2 + 2 * 7 + 7 * 2)
    assert smaller.parameters() == (3 + 1) * 2 + (2 + 1) * 7 + (7 + 1) * 2


@pytest.mark.parametrize("name", ["grouped", "densenet", "fused_qkv"])
def test_groups_of_a_smaller_model_are_those_it_is_found_to_have(name):
    model, x = ZOO[name]()
    groups = find_groups(model, x)
    keep = {group.name: torch.arange(group.size) > 0 for group in groups}
    small = remove(model, x, keep=keep)
    found = find_groups(small, x)
    assert groups.keep(keep).macs() == found.macs()
    assert groups.keep(keep).parameters() == found.parameters()


def test_an_atom_cannot_be_resized(groups):
    with pytest.raises(AttributeError):
        groups[0].atom.size = 3

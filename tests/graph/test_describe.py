import torch
from torch import nn

from diffprune import find_groups

EXPECTED = """\
2 groups in a model of 78 parameters and 256 MACs
group  units  parameters/unit  MACs/unit  where
0          5               11         40  0.weight[0], 0.bias[0], 2.weight[1]
2          7                8         28  2.weight[0], 2.bias[0], 3.weight[1]
frozen:
  0:1 (3 units): an input of the model, or a constant
  3 (2 units): an output of the model"""


def test_groups_print_as_a_table():
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 7), nn.Linear(7, 2))
    assert str(find_groups(model, torch.rand(4, 3))) == EXPECTED


def test_many_places_are_cut_short_and_positions_left_out():
    layers = [nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Conv2d(5, 2, 3)]
    text = str(find_groups(nn.Sequential(*layers), torch.rand(2, 3, 8, 8)))
    assert "0.weight[0], 0.bias[0], 1.weight[0] +4" in text
    assert "a position in space" not in text


def test_nothing_frozen_needs_no_heading():
    from diffprune._graph.describe import describe

    assert len(describe([], [])) == 1

"""What gates multiply: the reader of a sum, or the nearest maker of its operands."""

import torch
from torch import nn

from diffprune import find_groups
from diffprune._pruner.gate_targets import Targets


def targets(model, x):
    groups = find_groups(model, x)
    found = Targets(groups)
    return {group.name: set(found.of(group)) for group in groups}


def test_a_layer_that_sums_over_the_units_is_gated():
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    assert targets(model, torch.rand(2, 3)) == {"0": {("2.weight", 1)}}


class Scores(nn.Module):
    """Queries meet keys; both come from layers of their own, through a scale."""

    def __init__(self, layers):
        super().__init__()
        self.queries = nn.ModuleList(nn.Linear(4, 6) for _ in range(layers))
        self.keys = nn.ModuleList(nn.Linear(4, 6) for _ in range(layers))
        self.scales = nn.ParameterList(torch.rand(6) for _ in range(layers))

    def forward(self, x):
        for query, key, scale in zip(self.queries, self.keys, self.scales, strict=True):
            x = x + (query(x) @ (key(x) * scale).mT).sum(-1, keepdim=True)
        return x


def test_where_activations_meet_the_nearest_maker_is_gated_and_no_other():
    found = targets(Scores(3), torch.rand(2, 5, 4))
    assert found == {f"queries.{n}": {(f"scales.{n}", 0)} for n in range(3)}


def test_one_group_of_many_layers_is_gated_once_in_each():
    groups = find_groups(Scores(3), torch.rand(2, 5, 4), tie=[["queries.*"]])
    (group,) = groups
    assert set(Targets(groups).of(group)) == {(f"scales.{n}", 0) for n in range(3)}


class Turned(nn.Module):
    """Queries and keys, turned by angles that a buffer holds."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(4, 6), nn.Linear(4, 6)
        self.register_buffer("angles", torch.rand(6))

    def forward(self, x):
        turn = self.angles.cos()
        return x + ((self.query(x) * turn) @ (self.key(x) * turn).mT).sum(-1, True)  # noqa: FBT003 - keepdim


def test_buffers_are_never_gated():
    (found,) = targets(Turned(), torch.rand(2, 5, 4)).values()
    assert found == {("key.weight", 0), ("key.bias", 0)}

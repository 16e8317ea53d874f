"""What makes group discovery right, on every network of the zoo."""

import copy
from functools import cache

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from diffprune import find_groups
from diffprune._graph.axes import Cat
from zoo import ZOO, call

# The flop counter skips bilinear layers, we skip recurrent layers with projections.
COUNTED = sorted(ZOO.keys() - {"bilinear", "projected_lstm"})


@cache
def groups_of(name):
    return find_groups(*ZOO[name]())


def rearranged(axis, orders):
    """Where every element of an axis comes from when units of atoms change places."""
    index = torch.zeros(1, dtype=torch.long)
    for factor in axis:
        if isinstance(factor, Cat):
            parts, start = [], 0
            for part in factor.parts:
                parts.append(start + rearranged(part, orders))
                start += len(parts[-1])
            inner = torch.cat(parts)
        else:
            inner = orders.get(factor, torch.arange(factor.size))
        index = (index[:, None] * factor.size + inner).flatten()
    return index


def permute_(model, groups):
    """Permute the units of all groups in all their axes."""
    orders = {group.atom: torch.randperm(group.size) for group in groups}
    named = [*model.named_parameters(), *model.named_buffers()]
    with torch.no_grad():
        for name, tensor in named:
            for dim, axis in enumerate(groups.tensors[name]):
                index = rearranged(axis, orders)
                tensor.copy_(tensor.clone().index_select(dim, index))


@pytest.mark.parametrize("name", ZOO)
def test_permuting_units_leaves_the_outputs_unchanged(name):
    model, inputs = ZOO[name]()
    expected = call(copy.deepcopy(model), inputs)
    permute_(model, groups_of(name))
    torch.testing.assert_close(call(model, inputs), expected)


@pytest.mark.parametrize("name", ZOO)
def test_no_unit_belongs_to_two_groups(name):
    groups = groups_of(name)
    assert len({group.atom for group in groups}) == len(groups)
    assert len({group.name for group in groups}) == len(groups)


@pytest.mark.parametrize("name", ZOO)
def test_what_the_zoo_expects_is_found(name):
    groups, expect = groups_of(name), ZOO[name].expect
    assert len(groups) >= expect.min_prunable_groups
    assert not (expect.frozen and groups.groups)


@pytest.mark.parametrize("name", COUNTED)
def test_multiply_adds_are_half_the_flops(name):
    model, inputs = ZOO[name]()
    # Other kernels of attention are not counted.
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        call(model, inputs)
    assert groups_of(name).macs() == counter.get_total_flops() / 2


@pytest.mark.parametrize("name", ZOO)
def test_parameters_are_counted(name):
    model, _ = ZOO[name]()
    assert groups_of(name).parameters() == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("name", ZOO)
def test_costs_per_unit_are_what_one_unit_less_saves(name):
    groups = groups_of(name)
    for group in groups:
        fewer = {group.atom: group.size - 1}
        assert groups.parameters() - groups.parameters(fewer) == group.parameters
        assert groups.macs() - groups.macs(fewer) == group.macs

"""Removal is invisible: the laws, over the whole zoo and over random networks."""

import copy
from functools import cache
from math import prod

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from diffprune._graph import find_groups
from diffprune._surgery import Plan, apply_plan, mask, plan_removal, removal
from diffprune.errors import DiffpruneError
from generator import random_network
from zoo import ZOO, call

aten = torch.ops.aten
CHUNK, CHUNKS = 25, 20
SEEDS = st.integers(0, 2**32 - 1)


@cache
def analysed(name):
    """The model, its inputs and its groups; no test changes any of them."""
    model, inputs = ZOO[name]()
    return model, inputs, find_groups(model, inputs)


@pytest.fixture(params=ZOO)
def entry(request):
    return analysed(request.param)


def random_masks(groups, seed):
    """For each group a mask that keeps about 60 % of the units, and at least one."""
    draw = torch.Generator().manual_seed(seed)
    masks = {}
    for group in groups:
        mask = torch.rand(group.size, generator=draw) < 0.6
        mask[torch.randint(group.size, (1,), generator=draw)] = True
        masks[group.name] = mask
    return masks


def outputs(model, inputs):
    """All tensors it returns; no buffer of the model changes."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        return pytree.tree_leaves(call(copy.deepcopy(model), inputs))


def assert_equal(one, other, *, rtol=0.0, atol=0.0):
    torch.testing.assert_close(one, other, rtol=rtol, atol=atol, equal_nan=True)


def sizes(groups, masks):
    return {groups[name].atom: int(mask.sum()) for name, mask in masks.items()}


@settings(max_examples=3)
@given(seed=SEEDS)
@pytest.mark.parametrize("name", ZOO)
def test_outputs_are_those_of_the_masked_original(name, seed):
    model, inputs, groups = analysed(name)
    masks = random_masks(groups, seed)
    small = apply_plan(model, plan_removal(groups, keep=masks))
    masked = mask(model, groups, masks)
    assert_equal(outputs(small, inputs), outputs(masked, inputs), atol=1e-10)


def is_random(module):
    attention = isinstance(module, nn.MultiheadAttention | nn.RNNBase)
    return isinstance(module, _DropoutNd | nn.RReLU) or (
        attention and module.dropout > 0
    )


def test_outputs_are_those_of_the_masked_original_in_train_mode(entry):
    model, inputs, groups = entry
    if any(is_random(module) for module in model.modules()):
        pytest.skip("draws other random numbers for other widths")
    masks = random_masks(groups, seed=1)
    small = apply_plan(model, plan_removal(groups, keep=masks)).train()
    masked = mask(model, groups, masks).train()
    assert_equal(outputs(small, inputs), outputs(masked, inputs), atol=1e-10)


def test_the_certificate_agrees_and_the_original_is_untouched(entry):
    model, inputs, groups = entry
    before = copy.deepcopy(model.state_dict())
    result = removal(model, inputs, groups, keep=random_masks(groups, seed=2))
    assert result.plan.certificate.max_relative <= 1e-10
    assert type(result.model) is type(model)
    assert result.model.training == model.training
    assert_equal(model.state_dict(), before)
    assert list(result.model.state_dict()) == list(before)


def test_keeping_everything_is_the_identity(entry):
    model, _, groups = entry
    masks = {group.name: torch.ones(group.size, dtype=torch.bool) for group in groups}
    plan = plan_removal(groups, keep=masks)
    assert plan == Plan({}, {}, {})
    assert_equal(apply_plan(model, plan).state_dict(), model.state_dict())


def test_removing_twice_is_removing_the_union_once(entry):
    model, inputs, groups = entry
    first = random_masks(groups, seed=3)
    early = plan_removal(groups, keep=first)
    small = apply_plan(model, early)
    again = find_groups(small, inputs)
    second = random_masks(again, seed=4)
    late = plan_removal(again, keep=second)
    union = {name: first[name].clone() for name in first}
    for name in second:
        union[name][first[name]] = second[name]
    once = plan_removal(groups, keep=union)
    twice = apply_plan(small, late)
    assert_equal(twice.state_dict(), apply_plan(model, once).state_dict())
    assert_equal(apply_plan(model, early.then(late)).state_dict(), twice.state_dict())
    assert str(twice) == str(apply_plan(model, once))


def test_plans_survive_json(entry):
    _, _, groups = entry
    plan = plan_removal(groups, keep=random_masks(groups, seed=5))
    assert Plan.from_json(plan.to_json()) == plan


def test_parameters_fall_as_predicted(entry):
    model, _, groups = entry
    masks = random_masks(groups, seed=6)
    small = apply_plan(model, plan_removal(groups, keep=masks))
    assert groups.parameters() == sum(p.numel() for p in model.parameters())
    expected = groups.parameters(sizes(groups, masks))
    assert sum(p.numel() for p in small.parameters()) == expected


def attention_flops(query, key, value, *_, **__):
    batch, heads, length, width = query
    return 2 * batch * heads * length * key[2] * (width + value[3])


def bilinear_flops(first, weight, *_, **__):
    return 2 * first[0] * prod(weight)


# Torch's counter knows neither of them.
UNCOUNTED = {
    aten._scaled_dot_product_flash_attention_for_cpu: attention_flops,
    aten._trilinear: bilinear_flops,
}


def multiply_adds(model, inputs):
    frozen = copy.deepcopy(model).requires_grad_(requires_grad=False)
    with FlopCounterMode(display=False, custom_mapping=UNCOUNTED) as counter:
        call(frozen, inputs)
    return counter.get_total_flops() // 2


def test_multiply_adds_fall_as_predicted(entry):
    model, inputs, groups = entry
    masks = random_masks(groups, seed=7)
    small = apply_plan(model, plan_removal(groups, keep=masks))
    fewer = groups.macs() - groups.macs(sizes(groups, masks))
    counted = multiply_adds(model, inputs) - multiply_adds(small, inputs)
    assert fewer == counted


def test_the_smaller_model_trains(entry):
    model, inputs, groups = entry
    masks = random_masks(groups, seed=8)
    small = apply_plan(model, plan_removal(groups, keep=masks)).train()
    before = copy.deepcopy(dict(small.named_parameters()))
    optimizer = torch.optim.SGD(small.parameters(), lr=1e-3)
    sum(
        out.square().sum() for out in pytree.tree_leaves(call(small, inputs))
    ).backward()
    optimizer.step()
    after = dict(small.named_parameters())
    assert all(parameter.isfinite().all() for parameter in after.values())
    assert any(not torch.equal(after[name], before[name]) for name in after)


def check_random_network(seed):
    model, x = random_network(seed)
    try:
        groups = find_groups(model, x)
    except DiffpruneError:
        return
    masks = random_masks(groups, seed)
    small = apply_plan(model, plan_removal(groups, keep=masks))
    masked = mask(model, groups, masks)
    assert_equal(outputs(small, x), outputs(masked, x), atol=1e-10)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_networks_are_cut_exactly_or_refused(chunk):
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        check_random_network(seed)

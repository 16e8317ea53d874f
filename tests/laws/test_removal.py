"""Removal is invisible: the laws, over the whole zoo."""

import copy
from math import prod

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from diffprune import testing
from diffprune.surgery import Plan, apply_plan, plan_removal
from zoo import ZOO, analysed, call

aten = torch.ops.aten


@pytest.fixture(params=ZOO)
def entry(request):
    return analysed(request.param)


def cut(entry, seed):
    """The network without random units, and how many units each atom keeps."""
    model, _, groups = entry
    keep = testing.random_keep(groups, seed=seed)
    small = apply_plan(model, plan_removal(groups, keep=keep))
    return small, {groups[name].atom: int(kept.sum()) for name, kept in keep.items()}


@pytest.mark.parametrize("seed", range(3))
def test_outputs_are_those_of_the_masked_original(entry, seed):
    model, inputs, groups = entry
    result = testing.check_removal(model, inputs, groups=groups, seed=seed)
    assert result.plan.certificate.max_relative <= 1e-10


def test_removals_compose(entry):
    model, inputs, groups = entry
    testing.check_composition(model, inputs, groups=groups, seed=3)


def test_parameters_fall_as_predicted(entry):
    small, widths = cut(entry, seed=6)
    left = sum(p.numel() for p in small.parameters())
    assert left == entry.groups.parameters(widths)


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
    frozen = apply_plan(model, Plan({}, {}, {})).requires_grad_(requires_grad=False)
    torch.backends.mha.set_fastpath_enabled(False)  # fused kernels are not counted
    with FlopCounterMode(display=False, custom_mapping=UNCOUNTED) as counter:
        call(frozen, inputs)
    torch.backends.mha.set_fastpath_enabled(True)
    return counter.get_total_flops() // 2


def test_multiply_adds_fall_as_predicted(entry):
    model, inputs, groups = entry
    small, widths = cut(entry, seed=7)
    fewer = groups.macs() - groups.macs(widths)
    counted = multiply_adds(model, inputs) - multiply_adds(small, inputs)
    assert fewer == counted


def test_the_smaller_model_trains(entry):
    small = cut(entry, seed=8)[0].train()
    before = copy.deepcopy(dict(small.named_parameters()))
    optimizer = torch.optim.SGD(small.parameters(), lr=1e-3)
    sum(
        out.square().sum() for out in pytree.tree_leaves(call(small, entry.inputs))
    ).backward()
    optimizer.step()
    after = dict(small.named_parameters())
    assert all(parameter.isfinite().all() for parameter in after.values())
    assert any(not torch.equal(after[name], before[name]) for name in after)

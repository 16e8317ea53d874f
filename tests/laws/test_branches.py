"""A branch of which nothing is left disappears, and nobody can tell."""

import copy
from functools import cache

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from diffprune import find_groups
from diffprune.surgery import (
    Plan,
    apply_plan,
    compaction,
    mask,
    plan_removal,
    removal,
)
from zoo import analysed, call

# The network, the group that is emptied, and the modules that go with it.
BRANCHES = {
    "residual MLP": ("residual_mlp", "fc1", ["fc1", "fc2"]),
    "conv": ("resnet", "layer1.conv1", ["layer1.conv1", "layer1.bn1", "layer1.conv2"]),
    "strided and widened conv": (
        "resnet",
        "layer2.0.conv1",
        ["layer2.0.conv1", "layer2.0.bn1", "layer2.0.conv2"],
    ),
    "pre-activation": ("pre_activation", "conv1", ["bn1", "conv1", "bn2", "conv2"]),
    "squeeze and excitation": (
        "inverted_residual",
        "expand.0",
        ["expand", "depthwise", "reduce", "excite", "project"],
    ),
    "transformer MLP": (
        "vit",
        "blocks.0.fc1",
        ["blocks.0.norm2", "blocks.0.fc1", "blocks.0.fc2"],
    ),
    "SwiGLU": (
        "llama",
        "layers.0.gate_proj",
        [f"layers.0.{n}" for n in ("norm2", "gate_proj", "up_proj", "down_proj")],
    ),
    "attention": ("softmax_by_hand", "attention.qkv:heads", ["attention"]),
}


@cache
def emptied(case):
    """The network, its inputs, it with the branch zeroed by hand, and without it."""
    name, group, gone = BRANCHES[case]
    model, inputs, groups = analysed(name)
    masks = {group: torch.zeros(groups[group].size, dtype=torch.bool)}
    zeroed = mask(model, groups, masks)
    return model, inputs, zeroed, gone, removal(model, inputs, groups, keep=masks)


@pytest.fixture(params=BRANCHES)
def branch(request):
    return emptied(request.param)


def outputs(model, inputs, *, training=False):
    with torch.no_grad():
        return pytree.tree_leaves(call(copy.deepcopy(model).train(training), inputs))


def parameters_in(model, paths):
    return sum(
        p.numel() for path in paths for p in model.get_submodule(path).parameters()
    )


@pytest.mark.parametrize("training", [False, True])
def test_the_outputs_are_those_of_the_zeroed_network(branch, training):
    _, inputs, zeroed, _, small = branch
    expected = outputs(zeroed, inputs, training=training)
    actual = outputs(small.model, inputs, training=training)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


def test_what_the_branch_had_and_cost_is_gone(branch):
    model, inputs, _, gone, small = branch
    total = sum(p.numel() for p in model.parameters())
    left = sum(p.numel() for p in small.model.parameters())
    assert left == total - parameters_in(model, gone)
    assert set(small.plan.stubs) == set(gone)
    with FlopCounterMode(display=False) as before:
        call(model, inputs)
    with FlopCounterMode(display=False) as after:
        call(small.model, inputs)
    names = [f"{type(model).__name__}.{path}" for path in gone]
    counts = before.get_flop_counts()
    of_branch = sum(sum(counts[name].values()) for name in names if name in counts)
    assert of_branch > 0
    assert after.get_total_flops() <= before.get_total_flops() - of_branch


def test_what_remains_has_the_names_it_had(branch):
    model, _, _, gone, small = branch
    inside = tuple(f"{path}." for path in gone)
    expected = [name for name in model.state_dict() if not name.startswith(inside)]
    assert list(small.model.state_dict()) == expected
    assert type(small.model) is type(model)


def test_compact_finds_the_branch_by_itself(branch):
    _, inputs, zeroed, _, small = branch
    found = compaction(zeroed, inputs)
    assert found.plan.stubs == small.plan.stubs
    torch.testing.assert_close(
        outputs(found.model, inputs), outputs(zeroed, inputs), rtol=0, atol=1e-10
    )


def test_a_stored_plan_and_state_give_the_same_network(branch):
    model, inputs, _, _, small = branch
    plan = Plan.from_json(small.plan.to_json())
    assert plan == small.plan
    again = apply_plan(model, plan)
    again.load_state_dict(small.model.state_dict())
    expected = outputs(small.model, inputs)
    torch.testing.assert_close(outputs(again, inputs), expected, rtol=0, atol=0)


def test_the_smaller_network_can_be_exported(branch):
    _, inputs, _, _, small = branch
    exported = torch.export.export(small.model, inputs, strict=False).module()
    actual = pytree.tree_leaves(exported(*inputs))
    torch.testing.assert_close(actual, outputs(small.model, inputs))


def test_the_smaller_network_can_be_cut_further(branch):
    model, inputs, _, _, small = branch
    groups = find_groups(small.model, inputs)
    masks = {g.name: torch.arange(g.size) % 3 > 0 for g in groups if g.size > 1}
    later = plan_removal(groups, keep=masks)
    twice, once = apply_plan(small.model, later), small.plan.then(later)
    assert str(apply_plan(model, once)) == str(twice)
    outputs(twice, inputs)


def test_the_smaller_network_trains(branch):
    _, inputs, _, _, small = branch
    model = copy.deepcopy(small.model).train()
    sum(
        out.square().sum() for out in pytree.tree_leaves(call(model, inputs))
    ).backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert gradients
    assert all(gradient.isfinite().all() for gradient in gradients)

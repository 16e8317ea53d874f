"""Removal is invisible in networks that nobody has drawn up; 500 of them, by seed."""

import pytest
import torch
from torch import nn

import diffprune as dp
from diffprune import testing
from diffprune.surgery import mask
from generator import random_network
from zoo import replayed

CHUNK, CHUNKS = 25, 20
# In these nothing can be removed. That there are so few, and that none is refused, is
# part of the law: a network without groups would obey every other.
WITHOUT_GROUPS = frozenset({47})


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_networks_have_groups_and_are_cut_exactly(chunk):
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        model, x = random_network(seed)
        groups = dp.find_groups(model, x)
        assert groups.groups or seed in WITHOUT_GROUPS, f"seed {seed}: {groups}"
        torch.testing.assert_close(replayed(groups, model, x), [model(x)])
        testing.check_removal(model, x, groups=groups, seed=seed)


@pytest.mark.parametrize("seed", range(20))
def test_networks_that_share_layers_and_memory_are_cut_and_compacted_exactly(seed):
    model, x = random_network(seed, shares=True)
    groups = dp.find_groups(model, x)
    keep = testing.random_keep(groups, seed=seed)
    testing.check_removal(model, x, groups=groups, keep=keep)
    masked = mask(model, groups, keep)
    _silence_(masked)
    small = dp.compact(masked, x)
    for inputs in (x, 2 * torch.randn_like(x)):
        torch.testing.assert_close(small(inputs), masked(inputs), rtol=0, atol=1e-10)


@torch.no_grad()
def _silence_(model):
    """Leave some units of every layer nothing but a constant."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d) and module.bias is not None:
            module.weight[::3] = 0
            module.bias[::6] = -0.1


def test_nearly_all_random_networks_have_groups():
    assert len(WITHOUT_GROUPS) <= CHUNK * CHUNKS - 490

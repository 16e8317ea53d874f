"""Removal is invisible in networks that nobody has drawn up; 500 of them, by seed."""

import pytest

import diffprune as dp
from diffprune import testing
from generator import random_network

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
        testing.check_removal(model, x, groups=groups, seed=seed)


def test_nearly_all_random_networks_have_groups():
    assert len(WITHOUT_GROUPS) <= CHUNK * CHUNKS - 490

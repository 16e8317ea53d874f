import functools
import sys

import pytest
import torch
from torch import nn

from diffprune import find_groups, remove
from diffprune._graph.memories import no_memories


@functools.lru_cache
def divided(shape, heads):
    """What a shape is when its last entry is divided, as einops computes it."""
    if shape[-1] % heads != 0:
        raise ValueError(shape)
    return (*shape[:-1], heads, shape[-1] // heads)


@functools.cache
def places(width):
    return torch.arange(width).double()


class Heads(nn.Module):
    """4 -> fc 21 -> 3 heads of 7, each times a number of its own -> fc 2."""

    def __init__(self):
        super().__init__()
        self.heads = 3
        self.first, self.scale = nn.Linear(4, 21), nn.Parameter(torch.ones(3, 1))
        self.last = nn.Linear(21, 2)

    def forward(self, x):
        x = self.first(x)
        x = x.reshape(divided(x.shape, self.heads)) * self.scale
        return self.last(x.tanh().flatten(1))


class Rows(nn.Linear):
    """Adds to each row its number, which a method remembers."""

    @functools.lru_cache  # noqa: B019 - as some layers do
    def numbers(self, rows):
        return torch.arange(rows, dtype=torch.float64)[:, None]

    def forward(self, x):
        return super().forward(x) + self.numbers(len(x))


@pytest.fixture(autouse=True)
def forgotten():
    yield
    divided.cache_clear()
    places.cache_clear()


@pytest.mark.parametrize("is_warm", [False, True], ids=["cold", "warm"])
def test_shapes_that_are_remembered_follow_a_cut(is_warm, sizes, x):
    model = Heads().double()
    if is_warm:
        model(x)
    assert sizes(model) == {"scale": 3, "first": 7}


def test_integers_of_a_trace_are_not_remembered(x):
    find_groups(Heads().double(), x)
    assert all(type(n) is int for n in divided((2, 21), 3))


def test_tensors_of_a_trace_are_forgotten(between, x):
    model = between(lambda m, h: m.last(h) + places(3))
    find_groups(model, x)
    assert type(model(x)) is torch.Tensor
    assert type(places(3)) is torch.Tensor


def test_tensors_that_were_known_before_stay(between, x):
    mine = places(3)
    find_groups(between(lambda m, h: m.last(h) + places(3)), x)
    assert places(3) is mine


def test_methods_may_remember(x):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), Rows(8, 3)).double()
    groups = find_groups(model, x)
    remove(model, x, keep={groups[0].name: torch.arange(8) > 2})
    assert type(model(x)) is torch.Tensor
    assert type(vars(Rows)["numbers"]) is functools._lru_cache_wrapper


def test_memories_are_put_back_after_a_failure():
    mine = sys.modules[__name__]
    before = mine.divided

    def broken():
        with no_memories(nn.Identity(), lambda value: value == 3):
            assert mine.divided is not before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert mine.divided is before


def test_only_calls_with_new_arguments_pass_by_a_memory():
    mine = sys.modules[__name__]
    with no_memories(nn.Identity(), lambda value: value == 3):
        assert mine.divided((2, 21), 3) == (2, 3, 7)
        assert mine.divided.cache_info().currsize == 0
        assert mine.divided((2, 21), 7) == (2, 7, 3)
        assert mine.divided.cache_info().currsize == 1

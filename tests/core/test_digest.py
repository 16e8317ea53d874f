"""A digest changes with anything that was saved, and is fast."""

import collections
import copy
import math

import pytest
import torch
from torch import nn

from diffprune._core.digest import digest
from diffprune.errors import ArgumentError

TREE = {
    "a": torch.arange(10_000.0).reshape(100, 100),
    "b": [1, 2.5, "x", None, True, (3, b"y")],
    "c": collections.OrderedDict(d={1, 2}, e=torch.float32, f=torch.Size((1, 2))),
}


def test_equal_things_have_one_digest():
    assert digest(TREE) == digest(copy.deepcopy(TREE))
    assert digest(torch.ones(4)[::2]) == digest(torch.ones(2))
    assert digest(nn.Parameter(torch.ones(2))) == digest(torch.ones(2))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        ([1, 2], (1, 2)),
        ([[1], 2], [[1, 2]]),
        ({"a": 1}, {"b": 1}),
        ("ab", "ba"),
        (0.0, -0.0),
        (torch.ones(2), torch.ones(2, 1)),
        (torch.ones(2), torch.ones(2).int()),
        (torch.zeros(1), -torch.zeros(1)),
        (torch.tensor(math.nan), torch.tensor(-math.nan)),
        (torch.ones(0), torch.ones(0, 1)),
        ([torch.tensor([1.0, 2.0])], [torch.tensor([2.0, 1.0])]),
    ],
)
def test_different_things_have_different_digests(one, other):
    assert digest(one) != digest(other)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("size", [1, 7, 8, 40_000])
def test_every_flipped_bit_and_every_swap_is_seen(dtype, size):
    tensor = torch.randint(0, 100, (size,)).to(dtype)
    expected, data = digest(tensor), tensor.view(torch.uint8)
    for place in torch.randint(0, len(data), (20,)):
        data[place] ^= 8
        assert digest(tensor) != expected
        data[place] ^= 8
    tensor[0], tensor[-1] = 1, 2
    expected = digest(tensor)
    tensor[0], tensor[-1] = 2, 1
    assert digest(tensor) != expected


def test_places_that_do_not_align_are_read():
    whole = torch.arange(9, dtype=torch.uint8)
    assert digest(whole[1:]) == digest(whole[1:].clone())


def test_the_place_of_what_cannot_be_saved_is_named():
    with pytest.raises(ArgumentError, match=r"extra\['a'\]\[1\] is a .*function"):
        digest({"a": [1, len]}, "extra")


def test_what_is_nested_too_deeply_is_refused():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ArgumentError, match="too deeply"):
        digest(deep)

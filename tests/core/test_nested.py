"""What is taken apart comes back equal, of the same kinds, through JSON."""

import collections
import json
import math

import pytest
import torch
from torch import nn

from diffprune._core.nested import put_together, take_apart
from diffprune.errors import ArgumentError

VALUES = [
    {"a": [1, 2.5, "x", None, True], "b": (1, (2, [3]))},
    {0: {"step": 1}, "0": 2, None: 3, (1, 2): 4, True: 5},
    {"!tensor": 0, "!": 1},
    collections.OrderedDict(b=1, a={2, 3}),
    collections.Counter("abca"),
    [torch.Size((1, 2)), torch.float16, torch.device("cpu"), 1j, b"\x00\xff"],
    [math.inf, -0.0, 2**80, 1e-320],
    [],
    {},
    [[], {}, (), set()],
]


def through_json(value):
    tree, tensors = take_apart(value)
    return put_together(json.loads(json.dumps(tree)), tensors)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back(value):
    again = through_json(value)
    assert again == value
    assert repr(again) == repr(value)  # kinds and order, too


def test_tensors_come_back_in_their_places():
    one, other = torch.rand(2), nn.Parameter(torch.rand(3))
    again = through_json({"a": [one, (other, one)], 1: one})
    assert again["a"][0] is again["a"][1][1] is again[1] is one
    assert again["a"][1][0] is other


@pytest.mark.parametrize(
    "tree",
    [
        {"!tensor": 5},
        {"!tensor": -1},
        {"!tensor": True},
        {"!tensor": "0"},
        {"!nothing": 1},
        {"!dtype": "load"},
        {"!dtype": "__builtins__"},
        {"!device": "no"},
        {"!dict": [[1], []]},
        {"!dict": 3},
        {"!dict": [[[1]], [1]]},
        {"!set": [[1]]},
        {"!bytes": "zz"},
        {"!tuple": [1], "more": 2},
        {"!Size": ["a"]},
        {"!complex": [1, 2, 3]},
    ],
)
def test_a_tree_from_elsewhere_is_refused(tree):
    with pytest.raises(ArgumentError, match="damaged"):
        put_together(tree, [torch.ones(1)])


def test_a_tensor_without_values_is_named():
    with pytest.raises(ArgumentError, match=r"extra\['a'\] is on the meta device"):
        take_apart({"a": torch.empty(2, device="meta")}, "extra")

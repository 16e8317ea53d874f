import pytest
import torch
from torch import nn

from diffprune._graph.int_tracking import tracked_sizes
from diffprune._graph.tracked_int import Attribute, SizeLog, TrackedInt


def test_attributes_are_tracked_inside_and_plain_outside():
    layer = nn.Linear(3, 5)
    with tracked_sizes(layer, "eval") as log:
        assert isinstance(layer.in_features, TrackedInt)
        assert layer.in_features.source == Attribute("", "in_features", 3)
        assert isinstance(log, SizeLog)
    assert type(layer.in_features) is int
    assert "forward" not in vars(layer)


def test_everything_is_put_back_after_a_failure():
    layer = nn.Linear(3, 5)

    def broken():
        with tracked_sizes(layer, "eval"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken()
    assert type(layer.in_features) is int
    assert "forward" not in vars(layer)


def test_a_replaced_forward_is_put_back():
    layer = nn.Linear(3, 5)
    layer.forward = mine = lambda x: x
    with tracked_sizes(layer, "eval"):
        assert layer.forward is not mine
    assert layer.forward is mine


def test_outside_a_trace_nothing_is_tracked():
    layer = nn.Linear(3, 5)
    with tracked_sizes(layer, "eval"):
        out = layer(torch.rand(2, 3))
    assert type(out.shape[1]) is int


NUMBERS = {
    "shape": lambda _, h: h / h.shape[1],
    "size": lambda _, h: h / h.size(1),
    "negative size": lambda _, h: h * -h.size(-1),
    "numel": lambda _, h: h / h.numel(),
    "len": lambda _, h: h / len(h[0]),
    "int": lambda _, h: h / int(h.shape[1]),
    "float": lambda _, h: h * torch.full((1,), float(h.shape[1])),
    "full": lambda _, h: h * torch.full((1,), h.shape[1]),
    "tensor": lambda _, h: h * torch.tensor(h.shape[1]),
    "root": lambda _, h: h * h.shape[1] ** -0.5,
    "bound": lambda _, h: h.clamp(max=h.shape[1]),
    "larger": lambda _, h: h * max(1, h.shape[1]),
}


@pytest.mark.parametrize("body", NUMBERS.values(), ids=NUMBERS)
def test_a_width_used_as_a_number_is_frozen(between, reason, body):
    model = between(lambda m, h: m.last(body(m, h)))
    assert "its length is used as a number" in reason(model)


def test_an_attribute_that_is_no_width_may_be_a_number(between, sizes):
    assert sizes(between(lambda m, h: m.last(h * m.part))) == {"first": 8}

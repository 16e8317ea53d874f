import copy
import math
import operator
import pickle

import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from diffprune import remove
from diffprune._graph.int_sources import (
    Attribute,
    Dimension,
    SizeLog,
    evaluate,
)
from diffprune._graph.int_tracking import (
    TrackedInt,
    plain,
    source_of,
    tracked_sizes,
)

WIDTH = Attribute("block", "width", 12)
HEADS = Attribute("", "heads", 3)
EXACT = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod]


def tracked(source=WIDTH, log=None):
    return TrackedInt(source.value, source, log or SizeLog())


@pytest.mark.parametrize("op", EXACT)
@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 50))
def test_formulas_repeat_the_arithmetic(op, width, other, later):
    log = SizeLog()
    number = TrackedInt(width, Attribute("", "n", width), log)
    for result, expected in (
        (op(number, other), op(later, other)),
        (op(other, number), op(other, later)),
        (op(number, number), op(later, later)),
    ):
        assert evaluate(result.source, lambda _: later) == expected
    assert not log.fixed


@pytest.mark.parametrize("op", EXACT)
def test_values_are_those_of_integers(op):
    assert op(tracked(), 5) == op(12, 5)
    assert op(5, tracked()) == op(5, 12)
    assert -tracked() == -12


@pytest.mark.parametrize(
    "use",
    [
        float,
        int,
        math.sqrt,
        lambda n: n / 2,
        lambda n: 2 / n,
        lambda n: n**-0.5,
        lambda n: n * 0.5,
        lambda n: n // 2.0,
    ],
)
def test_use_as_a_number_is_noted(use):
    log = SizeLog()
    assert use(tracked(log=log)) == use(12)
    (why,) = log.fixed.values()
    assert list(log.fixed) == [WIDTH]
    assert why.startswith("its length is used as a number: block.width (test_int_tr")


def test_a_question_about_zero_is_noted_with_its_line():
    log = SizeLog()
    assert bool(tracked(log=log) % 5)
    assert not tracked(log=log) % 6
    assert min(map(str, log.asked)).startswith("(block.width % 5) == 0 (test_int")
    assert len(log.asked) == 2


def test_a_width_that_is_returned_is_fixed(between, reason):
    text = reason(between(lambda m, h: (m.last(h), {"width": h.shape[1]})))
    assert "its length is returned by the model: shape[1]" in text


def test_results_that_are_numbers_are_plain():
    assert type(tracked() / 2) is float
    assert type(plain(tracked())) is int
    assert plain(0.5) == 0.5


def test_equal_lengths_are_noted_and_unequal_are_not():
    log = SizeLog()
    width, same = tracked(log=log), tracked(Dimension("eval 0", 1, 12), log)
    assert width == same
    assert log.equal == [(width.source, same.source)]
    assert width != tracked(HEADS, log)
    assert width != "12"
    assert len(log.equal) == 1


def test_copies_and_pickles_are_plain_integers():
    assert type(copy.deepcopy(tracked())) is int
    assert type(pickle.loads(pickle.dumps(tracked()))) is int  # noqa: S301 - our own


def test_only_tracked_integers_have_a_source():
    assert source_of(tracked()) == WIDTH
    assert source_of(12) is None


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


SAME = {
    "data": lambda h: h.data,
    "detach": torch.Tensor.detach,
    "twice": lambda h: torch.detach(h.detach()),
}


@pytest.mark.parametrize("same", SAME.values(), ids=SAME)
def test_shapes_may_be_read_apart_from_gradients(between, sizes, same):
    def body(m, h):
        rows, width = same(h).shape
        return m.last(h.view(rows, width // 2, 2).view(rows, same(h).size(1)))

    assert sizes(between(body))


class Sides(nn.Module):
    """4 -> fc 11 -> split as a tuple or list says -> tanh, relu -> cat -> fc 3."""

    def __init__(self, several):
        super().__init__()
        self.several = several
        self.first, self.last = nn.Linear(4, 11), nn.Linear(11, 3)

    def forward(self, x):
        left, right = self.first(x).split(self.several, -1)
        return self.last(torch.cat((left.tanh(), right.relu()), -1))


@pytest.mark.parametrize("kind", [tuple, list])
def test_one_of_several_numbers_may_be_a_width(kind, sizes, x):
    model = Sides(kind((7, 4))).double()
    assert sizes(model) == {"first:0": 7, "first:1": 4}
    keep = {"first:0": torch.arange(7) > 1}
    small = remove(model, x, keep=keep)
    assert small.several == kind((5, 4))
    assert model.several == kind((7, 4))


def test_strides_of_layers_are_no_widths():
    layer = nn.Conv2d(3, 5, 1)
    with tracked_sizes(layer, "eval"):
        assert all(type(n) is int for n in layer.stride)


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

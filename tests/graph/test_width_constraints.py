import math

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from diffprune import find_groups, load_pruned, remove, save_pruned
from diffprune.surgery import apply_plan, plan_removal

LITERAL = {
    "view": lambda _, h: h.view(-1, 35),
    "reshape": lambda _, h: h.reshape(h.shape[0], 7, 5).flatten(1),
    "split": lambda _, h: torch.cat(h.split([3, 32], 1)[::-1], 1),
    "unflatten": lambda _, h: h.unflatten(1, (7, 5)).transpose(1, 2).flatten(1),
}


@pytest.mark.parametrize("body", LITERAL.values(), ids=LITERAL)
def test_a_literal_width_is_reported_with_its_line(between, reason, body):
    model = between(lambda m, h: m.last(body(m, h)), width=35, read=35)
    text = reason(model)
    assert "the code fixes its width: `aten." in text
    assert "conftest.py:" in text
    assert "self.body(self, self.first(x).relu())" in text
    assert "Write -1, or read the width from a shape or an attribute." in text


def test_a_literal_slice_freezes_what_it_keeps(between, x):
    model = between(lambda m, h: m.last(h[:, :16]), width=35, read=16)
    frozen = {axis.size: str(axis.reason) for axis in find_groups(model, x).frozen}
    assert "the code fixes its width: `aten.slice`" in frozen[16]


FOLLOWED = {
    "-1": lambda _, h: h.view(h.shape[0], -1),
    "shape": lambda _, h: h.reshape(h.shape[0], h.shape[1]),
    "attribute": lambda m, h: h.view(-1, m.width),
    "nothing times it": lambda m, h: h[:, 0 * m.width : m.width],
    "less itself": lambda m, h: h.narrow(1, m.width - m.width, m.width),
    "product": lambda _, h: h.reshape(h.shape[0] * h.shape[1]).view(len(h), -1),
}


@pytest.mark.parametrize("body", FOLLOWED.values(), ids=FOLLOWED)
def test_a_width_that_follows_is_prunable(between, sizes, body):
    assert sizes(between(lambda m, h: m.last(body(m, h)))) == {"first": 8}


def test_an_attribute_divides_an_axis_and_both_factors_follow(between, sizes):
    def body(module, h):
        parts = h.view(h.shape[0], module.part, -1)
        return module.last(parts.relu().flatten(1))

    assert sizes(between(body, width=15, read=15)) == {"first:0": 3, "first:1": 5}


def test_a_formula_that_would_not_follow_is_reported(between, reason):
    text = reason(between(lambda m, h: m.last(h.view(-1, m.part + 5))))
    assert "computes its width as (part + 5), which would not follow a cut" in text


def test_an_attribute_for_two_axes_ties_them(between, x):
    def body(module, h):
        other = torch.zeros(2, module.width, dtype=h.dtype)
        return module.last(h.view(-1, module.width) + other)

    groups = find_groups(between(body), x)
    assert "width" in map(str, groups.attributes)


# A layer between two others, and how it must describe itself when the first and the
# last have lost one of their units (of the groups, where there are some).
LAYERS = {
    "linear": (nn.Linear(8, 6), nn.Linear(7, 5)),
    "batch_norm": (nn.BatchNorm1d(8), nn.BatchNorm1d(7)),
    "bare batch_norm": (
        nn.BatchNorm1d(8, affine=False, track_running_stats=False),
        nn.BatchNorm1d(7, affine=False, track_running_stats=False),
    ),
    "prelu": (nn.PReLU(8), nn.PReLU(7)),
    "group_norm": (nn.GroupNorm(4, 8), nn.GroupNorm(3, 6)),
    "weight_norm": (weight_norm(nn.Linear(8, 6)), weight_norm(nn.Linear(7, 5))),
    "lstm": (nn.LSTM(8, 6), nn.LSTM(7, 5)),
}
IMAGE_LAYERS = {
    "conv": (nn.Conv2d(8, 6, 3), nn.Conv2d(7, 5, 3)),
    "grouped": (nn.Conv2d(8, 12, 1, groups=4), nn.Conv2d(3, 6, 1, groups=3)),
    "transposed": (nn.ConvTranspose2d(8, 6, 2), nn.ConvTranspose2d(7, 5, 2)),
    "batch_norm": (nn.BatchNorm2d(8), nn.BatchNorm2d(7)),
    "instance_norm": (nn.InstanceNorm2d(8), nn.InstanceNorm2d(7)),
}


def without_one(model, x):
    groups = find_groups(model, x)
    keep = {group.name: torch.arange(group.size) != 1 for group in groups}
    return apply_plan(model, plan_removal(groups, keep=keep))


class First(nn.Module):
    """Layers whose results may be tuples."""

    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            x = x[0] if isinstance(x, tuple) else x
        return x


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_describe_the_widths_they_have(kind):
    layer, expected = LAYERS[kind]
    width = 6 if "out_features=6" in str(layer) or kind == "lstm" else 8
    model = First(nn.Linear(4, 8), layer, nn.Linear(width, 2)).eval()
    small = without_one(model, torch.rand(3, 4))
    assert str(small.layers[1]) == str(expected) != str(layer)


@pytest.mark.parametrize("kind", IMAGE_LAYERS)
def test_image_layers_describe_the_widths_they_have(kind):
    layer, expected = IMAGE_LAYERS[kind]
    width = getattr(layer, "out_channels", 8)
    model = nn.Sequential(nn.Conv2d(1, 8, 1), layer, nn.Conv2d(width, 2, 1)).eval()
    small = without_one(model, torch.rand(2, 1, 6, 6))
    assert str(small[1]) == str(expected) != str(layer)


def test_layers_describe_embeddings_and_bilinear_maps():
    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.pair = nn.Embedding(7, 5), nn.Bilinear(5, 5, 4)
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            words = self.words(x)
            return self.head(self.pair(words, words))

    small = without_one(Pairs(), torch.tensor([1, 2]))
    assert str(small.words) == "Embedding(7, 4)"
    expected = "in1_features=4, in2_features=4, out_features=3"
    assert expected in str(small.pair)


def test_a_tied_layer_describes_itself_too():
    model = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 2))
    model[1].weight = model[0].weight
    small = without_one(model, torch.rand(2, 5))
    assert [layer.in_features for layer in small] == [
        layer.weight.shape[1] for layer in small
    ]


class Standardised(nn.Module):
    """A layer that is never called: its weight is computed with before."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 8, 3, padding=1), nn.Linear(8, 2)

    def forward(self, x):
        weight = self.conv.weight
        weight = weight - weight.mean((1, 2, 3), keepdim=True)
        x = nn.functional.conv2d(x, weight, self.conv.bias, padding=1)
        return self.head(x.relu().mean((2, 3)))


def test_layers_that_are_not_called_describe_themselves_and_are_loaded(tmp_path):
    model, x = Standardised(), torch.rand(2, 1, 5, 5)
    small = remove(model, x, keep={"conv": torch.arange(8) > 2})
    assert small.conv.out_channels == 5
    save_pruned(small, tmp_path)
    again = load_pruned(Standardised(), tmp_path)
    torch.testing.assert_close(again(x), small(x))


def test_widths_that_layers_report_are_frozen_where_they_are_numbers(between, reason):
    model = between(lambda m, h: m.last(h) / math.sqrt(m.first.out_features))
    why = reason(model)
    assert "its length is used as a number: first.out_features (" in why
    assert "test_width_constraints.py" in why


def test_widths_that_layers_report_may_be_sizes(between, sizes):
    model = between(lambda m, h: m.last(h.view(-1, m.first.out_features)))
    assert sizes(model) == {"first": 8}
    model = between(lambda m, h: m.last(h * torch.ones(m.last.in_features).to(h)))
    assert sizes(model) == {"first": 8}


ODD = {
    "truth": lambda m, h: m.last(h * 2 if h.shape[1] % 3 else h.tanh()),
    "negation": lambda m, h: m.last(h.tanh() if not h.shape[1] % 2 else h),
    "quotient": lambda m, h: m.last(h * 2 if h.shape[1] // 5 else h),
}


@pytest.mark.parametrize("body", ODD.values(), ids=ODD)
def test_a_truth_about_a_width_freezes_it(between, reason, body):
    assert "its length is compared: (shape[1]" in reason(between(body))


class TwoWidths(nn.Module):
    """Asks about the sum of two widths, each of which may be small by itself."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 12), nn.Linear(4, 11)
        self.c, self.d = nn.Linear(12, 3), nn.Linear(11, 3)

    def forward(self, x):
        y, z = self.a(x).relu(), self.b(x).relu()
        factor = 2.0 if y.shape[1] + z.shape[1] > 10 else 3.0
        return self.c(y) * factor + self.d(z)


def test_widths_that_are_compared_together_are_frozen_together(x):
    groups = find_groups(TwoWidths().double(), x)
    assert not list(groups)
    assert any("+ shape[1]) > 10" in str(axis.reason) for axis in groups.frozen)


class _DividedByItsInput(nn.Module):
    """The length of the input says which channels are read twice."""

    def __init__(self, body):
        super().__init__()
        self.first, self.last = nn.Linear(5, 12), nn.Linear(12, 2)
        self.body = body

    def forward(self, x):
        h = self.first(x.mean(1)).relu()
        return self.last(h) + self.body(h, x.shape[1])


DIVIDED = {
    "slice": lambda h, n: h[:, :n].sum(1, keepdim=True),
    "tail": lambda h, n: h[:, n:].sum(1, keepdim=True),
    "narrow": lambda h, n: h.narrow(1, 0, n).sum(1, keepdim=True),
    "split": lambda h, n: h.split([n, h.shape[1] - n], 1)[1].sum(1, keepdim=True),
    "reshape": lambda h, n: h.view(h.shape[0], n, -1).amax(1).sum(1, keepdim=True),
}


@pytest.mark.parametrize("body", DIVIDED.values(), ids=DIVIDED)
def test_a_width_that_the_length_of_an_input_divides_stays_whole(body):
    """At another length the same units would be read by something else."""
    groups = find_groups(_DividedByItsInput(body), torch.rand(2, 4, 5))
    assert not groups.sizes
    assert any(
        "the length of an input divides it: " in str(a.reason) for a in groups.frozen
    )


class _Groups(nn.Module):
    """3 -> conv 12 -> 4 groups of 3 among the examples, as `(b g) c` -> conv 2."""

    def __init__(self):
        super().__init__()
        self.groups = 4
        self.first, self.scale = nn.Conv1d(3, 12, 1), nn.Parameter(torch.rand(3, 1))
        self.last = nn.Conv1d(12, 2, 1)

    def forward(self, x):
        (b, _, n), h = x.shape, self.first(x)
        h = h.view(b, self.groups, -1, n).flatten(0, 1).relu() * self.scale
        return self.last(h.view(b, (h.shape[0] // b) * h.shape[1], n))


def test_a_formula_in_which_the_length_of_an_input_cancels_is_followed(sizes):
    inputs = torch.randn(2, 3, 5, dtype=torch.float64)
    assert sizes(_Groups().double(), inputs) == {"scale": 3, "first": 4}

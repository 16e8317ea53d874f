"""What is zero when units are removed, and memory that several values share."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffprune import find_groups
from diffprune._graph.axes import Atom, Cat
from diffprune._graph.zeros import (
    Silencer,
    silent_units,
    unit_numbers,
    unit_occurrences,
    viewed,
    when_zeroed,
    written,
)

aten = torch.ops.aten


def test_unit_numbers_follow_the_axis():
    atom, other = Atom(2), Atom(3)
    axis = (other, Cat(((atom,), (), (atom,))))
    assert unit_numbers(axis, atom).tolist() == [0, 1, -1, 0, 1] * 3
    assert unit_numbers((other, atom), other).tolist() == [0, 0, 1, 1, 2, 2]


def test_a_unit_is_silent_when_all_its_elements_are_zero():
    atom, other = Atom(2), Atom(3)
    zero = torch.tensor([True, False, True, True, True, True])
    silence = silent_units((other, atom), zero)
    assert silence[atom].tolist() == [True, False]
    assert silence[other].tolist() == [False, True, True]


def test_an_element_of_a_square_has_two_units():
    atom, other = Atom(2), Atom(3)
    rows, columns = unit_occurrences((atom, atom), atom)
    assert (rows.tolist(), columns.tolist()) == ([0, 0, 1, 1], [0, 1, 0, 1])
    parts = unit_occurrences((Cat(((atom,), (other,), (atom, atom))),), atom)
    assert parts[0].tolist() == [0, 1, -1, -1, -1, 0, 0, 1, 1]
    assert parts[1].tolist() == [-1, -1, -1, -1, -1, 0, 1, 0, 1]
    assert unit_occurrences((other,), atom) == []


def test_a_unit_of_a_square_is_heard_in_its_row_and_in_its_column():
    atom = Atom(3)
    zero = torch.ones(3, 3, dtype=torch.bool)
    zero[0, 2] = False
    silence = silent_units((atom, atom), zero.flatten())
    assert silence[atom].tolist() == [False, True, False]


def test_a_zero_along_the_columns_is_none_along_the_rows(between, x):
    def body(module, h):
        k, v = h.chunk(2, 1)
        context = k.exp()[:, :, None] * v[:, None, :]
        return module.last(context.sum(1))

    groups = find_groups(between(body, read=4), x)
    reasons = [str(axis.reason) for axis in groups.frozen]
    assert any("summed over while nothing makes it zero" in why for why in reasons)


# What is added to a sum decides: a unit is heard unless it is zero.
HEARD = {
    "sigmoid": lambda _, h: h.sigmoid(),
    "exp": lambda _, h: h.exp(),
    "plus one": lambda _, h: h + 1,
    "plus a constant": lambda m, h: h + m.memory,
    "ones like": lambda _, h: torch.ones_like(h),
    "full": lambda _, h: torch.full_like(h, 2.0),
    "softplus": lambda _, h: F.softplus(h),
    "padded with ones": lambda _, h: F.pad(h[..., None], (1, 1), value=1.0).sum(2),
    "comparison": lambda _, h: (h <= 0).to(h),
    "clamped": lambda _, h: h.clamp(min=0.5),
    "masked": lambda _, h: h.masked_fill(h < 0.5, 7.0),
    "where": lambda _, h: torch.where(h > 0.5, h, torch.ones_like(h)),
}
SILENT = {
    "itself": lambda _, h: h,
    "tanh": lambda _, h: h.tanh(),
    "gelu": lambda _, h: F.gelu(h),
    "times anything": lambda _, h: h * (h.sigmoid() + 1),
    "dropout": lambda _, h: F.dropout(h, 0.5, training=False),
    "square root": lambda _, h: h.abs().sqrt(),
    "normalised": lambda _, h: F.normalize(h, dim=1),
    "two branches": lambda _, h: h.sin() - h,
    "padded with zeros": lambda _, h: F.pad(h[..., None], (1, 1)).sum(2),
    "concatenated": lambda _, h: torch.cat((h, h * 2), dim=1),
    "zeros plus": lambda _, h: torch.zeros_like(h) + h,
    "stacked": lambda _, h: torch.stack((h, h.tanh()), 1).amax(1),
}


@pytest.mark.parametrize("body", HEARD.values(), ids=HEARD)
def test_what_is_not_zero_is_heard_in_a_sum(between, reason, body):
    model = between(lambda module, h: body(module, h).sum(1))
    assert "summed over while nothing makes it zero" in reason(model)


@pytest.mark.parametrize("body", SILENT.values(), ids=SILENT)
def test_what_stays_zero_is_not_heard_in_a_sum(between, sizes, body):
    model = between(lambda module, h: body(module, h).sum(1))
    assert sizes(model) == {"first": 8}


def test_masks_and_booleans_agree_when_everything_is_zero(between, x):
    model = between(lambda m, h: m.last(h.tanh() + h.sigmoid()))
    groups = find_groups(model, x)
    tensors = groups.solution.tensors

    def zero(name, dim):
        is_zero = name in groups.solution.parameter_names
        return torch.full((tensors[name].shape[dim],), is_zero)

    masks, booleans = Silencer(groups.solution, zero), when_zeroed(groups.solution)
    for value in (output for step in groups.solution.steps for output in step.outputs):
        expected = {atom: flag for atom, flag in booleans.of(value).items() if flag}
        found = {atom: True for atom, m in masks.of(value).items() if m.all()}
        assert found == expected


def test_silence_of_single_units_reaches_the_consumer():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    groups = find_groups(model, torch.rand(2, 3))
    rows = torch.tensor([True, False, True, False])

    def zero(name, dim):
        is_row = name.startswith("0") and dim == 0
        length = groups.solution.tensors[name].shape[dim]
        return rows if is_row else torch.zeros(length, dtype=torch.bool)

    silencer = Silencer(groups.solution, zero)
    (contraction,) = [
        c for c in groups.solution.facts.contractions if c.where.module == "2"
    ]
    ((value, dim), _) = contraction.operands
    assert torch.equal(silencer.along(value, dim)[groups["0"].atom], rows)


# Writing into memory that others share: exact, or frozen; never silently wrong.
def assign(h, index, value):
    h[index] = value
    return h


def after(change, h):
    """The tensor itself, read after some view of it was changed."""
    change(h)
    return h


def written_to(module, h):
    module.memory.copy_(h)
    return module.memory


def written_to_view(module, h):
    module.memory[:, :].copy_(h)
    return module.memory


def changed_through_base(_, h):
    view = h[:, :]
    h.add_(1)
    return view


def written_out(_, h):
    return torch.add(h, 1, out=torch.zeros_like(h))


everything = slice(None)
FROZEN = {
    "slice = 0": lambda _, h: assign(h, (everything, slice(3)), 0),
    "slice = 1": lambda _, h: assign(h, (everything, slice(3)), 1),
    "attribute slice = 1": lambda m, h: assign(h, (everything, slice(m.part)), 1.0),
    "column += 1": lambda _, h: after(lambda h: h[:, 1].add_(1), h),
    "row = 1": lambda _, h: assign(h, 0, 1),
    "two columns = 1": lambda _, h: assign(h, (everything, [1, 2]), 1),
    "buffer = h": written_to,
    "view of buffer = h": written_to_view,
    "alias += 1": lambda _, h: after(lambda h: h[:, :].add_(1), h),
    "view += 1": lambda _, h: after(lambda h: h.view(2, -1).add_(1), h),
    "transpose += 1": lambda _, h: after(lambda h: h.t().add_(1), h),
    "chunk += 1": lambda _, h: after(lambda h: h.chunk(2, 1)[0].add_(1), h),
    "detached += 1": lambda _, h: after(lambda h: h.detach().add_(1), h),
    "idle dropout += 1": lambda _, h: after(
        lambda h: F.dropout(h, training=False).add_(1), h
    ),
    "narrow = 2": lambda _, h: after(lambda h: h.narrow(1, 0, 3).fill_(2.0), h),
    "masked = 5": lambda _, h: h.masked_fill_(h > 0.1, 5.0),
    "scattered": lambda _, h: h.scatter_(1, torch.zeros(2, 1, dtype=torch.long), 1.0),
    "base += 1, view read": changed_through_base,
    "out=": written_out,
    "ones = h": lambda _, h: torch.ones_like(h).copy_(h),
}
EXACT = {
    "attribute slice zeroed": (
        lambda m, h: after(lambda h: h[:, : m.part].zero_(), h),
        {"first": 3},
    ),
    "transpose rectified": (
        lambda _, h: after(lambda h: h.t().relu_(), h),
        {"first": 8},
    ),
    "row zeroed": (lambda _, h: after(lambda h: h[0].zero_(), h), {"first": 8}),
    "clone += 1": (lambda _, h: after(lambda h: h.clone().add_(1), h), {"first": 8}),
    "drawn += 1": (
        lambda _, h: after(lambda h: torch.rand_like(h).add_(1), h),
        {"first": 8},
    ),
    "zeros += h": (lambda _, h: torch.zeros_like(h).add_(h), {"first": 8}),
    "view of zeros = h": (
        lambda _, h: after(lambda z: z[:, :].copy_(h), torch.zeros_like(h)),
        {"first": 8},
    ),
}


@pytest.mark.parametrize("body", FROZEN.values(), ids=FROZEN)
def test_units_changed_behind_their_back_are_frozen(between, sizes, body):
    assert sizes(between(lambda module, h: body(module, h).sum(1))) == {}


@pytest.mark.parametrize(("body", "found"), EXACT.values(), ids=EXACT)
def test_changes_that_keep_zeros_are_exact(between, sizes, body, found):
    assert sizes(between(lambda module, h: body(module, h).sum(1))) == found


@pytest.mark.parametrize("body", FROZEN.values(), ids=FROZEN)
def test_a_reader_with_weights_is_exact_or_frozen(between, sizes, body):
    sizes(between(lambda module, h: module.last(body(module, h))))


@pytest.mark.parametrize(
    ("op", "args", "kwargs", "writes", "views"),
    [
        (aten.add.Tensor, ("x", "y"), {}, [], []),
        (aten.add_.Tensor, ("x", "y"), {}, ["x"], []),
        (aten.add.out, ("x", "y"), {"out": "z"}, ["z"], []),
        (aten.view.default, ("x", [2]), {}, [], ["x"]),
        (aten.chunk.default, ("x", 2), {}, [], ["x"]),
        (aten.copy_.default, ("x", "y"), {}, ["x"], []),
    ],
)
def test_schemas_say_what_is_shared(op, args, kwargs, writes, views):
    assert written(op, args, kwargs) == writes
    assert viewed(op, args, kwargs) == views

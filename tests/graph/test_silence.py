import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffprune import find_groups
from diffprune._graph.axes import Atom, Cat
from diffprune._graph.silence import Silencer, silent_units, unit_numbers, when_zeroed


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

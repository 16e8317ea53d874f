"""Writing into memory that others share: exact, or frozen; never silently wrong."""

import pytest
import torch
from torch.nn import functional as F


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

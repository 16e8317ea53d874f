import pytest
import torch
from torch import nn

from diffprune import compact
from diffprune.testing import check_removal


def _half_in_place(m, h):
    out = h.clone()
    out[:, : m.part] = h[:, : m.part].tanh()
    return out


def _first_written(_, h):
    h = h.clone()
    h[:, :1].fill_(0.5)
    return h


BODIES = {
    "chunk": (lambda _, h: torch.cat(h.chunk(2, 1)[::-1], 1), {"first": 4}),
    "split": (lambda _, h: sum(h.split(h.shape[1] // 2, 1)).repeat(1, 2), {"first": 4}),
    "tensor_split sections": (
        lambda _, h: torch.cat(h.tensor_split(2, 1)[::-1], 1),
        {"first": 4},
    ),
    "tensor_split attribute": (
        lambda m, h: torch.cat(h.tensor_split([m.part], 1)[::-1], 1),
        {"first:0": 3, "first:1": 5},
    ),
    "tensor_split literals": (
        lambda _, h: torch.cat(h.tensor_split([2, 5], 1)[::-1], 1),
        {"first": 3},
    ),
    "slice up to an attribute": (
        lambda m, h: torch.cat((h[:, m.part :], h[:, : m.part]), 1),
        {"first:0": 3, "first:1": 5},
    ),
    "narrow": (
        lambda m, h: torch.cat((h.narrow(1, 0, m.part), h[:, m.part :]), 1),
        {"first:0": 3, "first:1": 5},
    ),
    "whole slice": (lambda _, h: h[:, :], {"first": 8}),
    "slice at a sum of widths": (
        lambda m, h: torch.cat(
            (h[:, : m.part], h[:, m.part : m.part + 2], h[:, m.part + 2 :]), 1
        ),
        {"first:0": 3, "first:2": 3},
    ),
    "slice up to a width that is all": (lambda _, h: h[:, : h.shape[1]], {"first": 8}),
    "slice from a width that is all": (
        lambda _, h: torch.cat((h.relu(), h[:, h.shape[1] :]), 1),
        {"first": 8},
    ),
    "slice up to a number that is all": (lambda _, h: h[:, :8], {"first": 8}),
    "every second": (lambda _, h: h[:, ::2].repeat(1, 2), {"first": 4}),
    "even and odd": (
        lambda _, h: torch.cat((h[:, ::2].tanh(), h[:, 1::2]), 1),
        {"first": 4},
    ),
    "every second from the third": (
        lambda _, h: torch.cat((h[:, 2::2], h[:, :5]), 1),
        {},
    ),
    "every third, which is not the same number everywhere": (
        lambda _, h: torch.cat((h[:, ::3], h[:, 1::3], h[:, 2::3]), 1),
        {},
    ),
    "only the shape of the first": (lambda _, h: h / h.mT[0].numel(), {"first": 8}),
    "only the shape of a first slice": (
        lambda _, h: h * torch.full_like(h[:, :1], 0.5) + h[:, -1:].new_ones(1),
        {"first": 8},
    ),
    "a first slice": (lambda _, h: h * h[:, :1], {"first": 7}),
    "a first slice that is written": (_first_written, {"first": 7}),
    "one": (lambda _, h: h[:, 3].unsqueeze(1).expand(-1, 8), {}),
    "by number": (lambda _, h: h[:, [5, 1, 2, 7, 0, 4, 6, 3]], {}),
    "index_select": (lambda _, h: h.index_select(1, torch.arange(8)), {}),
    "gather rows": (
        lambda _, h: h.gather(0, torch.zeros(2, 8, dtype=torch.long)),
        {},
    ),
    "along rows": (
        lambda _, h: h.take_along_dim(h.argsort(0, descending=True), 0),
        {"first": 8},
    ),
    "along rows, for all units": (
        lambda _, h: h.take_along_dim(torch.tensor([[1], [0]]), 0),
        {"first": 8},
    ),
    "along units": (lambda _, h: h.take_along_dim(h.argsort(1), 1), {}),
    "rows by number": (lambda _, h: h[[1, 0]], {"first": 8}),
    "rows by a mask": (lambda _, h: h[torch.tensor([True, False])], {"first": 8}),
    "rows by a mask over axes": (
        lambda _, h: h.unsqueeze(1)[torch.tensor([[True], [True]])],
        {"first": 8},
    ),
    "bounds": (
        lambda _, h: h * torch.bucketize(h.detach(), torch.tensor([0.1, 0.3]).to(h)),
        {"first": 8},
    ),
    "written in place up to an attribute": (
        _half_in_place,
        {"first:0": 3, "first:1": 5},
    ),
    "units by a mask": (lambda _, h: h[:, torch.tensor([True] * 8)], {}),
    "all by a mask": (
        lambda _, h: h.masked_select(torch.tensor([True] * 8)).view(-1, 8),
        {},
    ),
}


@pytest.mark.parametrize(("body", "found"), BODIES.values(), ids=BODIES)
def test_parts_are_told_apart(between, sizes, body, found):
    assert sizes(between(lambda m, h: m.last(body(m, h)))) == found


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_embeddings_lose_columns(mode):
    bag = nn.EmbeddingBag(20, 12, mode=mode, padding_idx=3)
    model = nn.Sequential(bag, nn.ReLU(), nn.Linear(12, 3)).double().eval()
    rows = torch.randint(20, (3, 6))
    assert check_removal(model, rows).model[0].embedding_dim < 12
    with torch.no_grad():
        bag.weight[:, :4] = 0
    assert compact(model, rows)[0].embedding_dim == 8


def test_places_among_bounds_that_a_layer_makes(between, sizes):
    def body(m, h):
        bounds = h.softmax(-1).cumsum(-1).detach()
        return m.last(h) + torch.searchsorted(bounds, torch.ones_like(h[:, :3]))

    assert sizes(between(body)) == {}

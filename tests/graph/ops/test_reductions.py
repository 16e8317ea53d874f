import pytest
import torch
from torch.nn.functional import cosine_similarity, pairwise_distance

SUMMED = {
    "sum": lambda h: h.sum(1),
    "sum of all": lambda h: h.sum(),
    "norm": lambda h: h.norm(dim=1),
    "norm of order 1": lambda h: h.norm(1, dim=1),
    "distances": lambda h: torch.cdist(h, h.flip(0)),
    "norm of scans": lambda h: (h.cumsum(0) + h.roll(1, 0)).norm(dim=1),
    "norm of maxima": lambda h: h.max(0).values.norm(),
    "norm of larger ones": lambda h: torch.max(h, h.sin()).norm(dim=1),
    "norm of the largest": lambda h: h.topk(1, 0).values.norm(dim=1),
    "norm of the second": lambda h: h.kthvalue(2, 0).values.norm(),
    "distances in batches": lambda h: torch.cdist(h.unsqueeze(1), h, p=1.0),
    "cosine": lambda h: cosine_similarity(h, h.tanh()),
    "cosines of all pairs": lambda h: cosine_similarity(h[:, None], h[None], dim=-1),
}
COMPARED = {
    "mean": lambda h: h.mean(1),
    "mean of all": lambda h: h.mean(),
    "variance": lambda h: h.var(1),
    "largest": lambda h: h.amax(1),
    "max": lambda h: h.max(1).values,
    "max of all": lambda h: h.max(),
    "position": lambda h: h.argmax(1),
    "topk": lambda h: h.topk(2, 1).values,
    "softmax": lambda h: h.softmax(1),
    "cumsum": lambda h: h.cumsum(1),
    "norm of order 0": lambda h: h.norm(0, dim=1),
    "distances from ones": lambda h: torch.cdist(h, torch.ones_like(h)),
    "cosine with ones": lambda h: cosine_similarity(h, torch.ones_like(h)),
    "quantile": lambda h: h.quantile(0.5, dim=1),
    "third": lambda h: h.kthvalue(3).values,
    "mean without NaN": lambda h: h.nanmean(1),
    "distance from itself": lambda h: pairwise_distance(h, h.tanh()),
    "cosine with one": lambda h: cosine_similarity(h, torch.ones_like(h[:, :1])),
}
OTHER_AXIS = {
    "mean": lambda h: h.mean(0, keepdim=True),
    "max": lambda h: h.max(0, keepdim=True).values,
    "quantile": lambda h: h.quantile(0.5, 0, keepdim=True),
    "second": lambda h: h.kthvalue(2, 0, keepdim=True).values,
    "mean without NaN": lambda h: h.nanmean(0, keepdim=True),
    "distances of rows": lambda h: h * pairwise_distance(h.mT, h.mT.tanh()),
    "two": lambda h: h.maximum(h.tanh()),
    "softmax": lambda h: h.softmax(0),
    "cosine": lambda h: cosine_similarity(h, h.tanh(), dim=0).expand(2, -1),
    "distances of units": lambda h: torch.cdist(h.mT, torch.ones(2, 2).double()).mT,
}


@pytest.mark.parametrize("body", SUMMED.values(), ids=SUMMED)
def test_zeros_add_nothing(between, sizes, body):
    assert sizes(between(lambda _, h: body(h))) == {"first": 8}


@pytest.mark.parametrize("body", COMPARED.values(), ids=COMPARED)
def test_statistics_couple_units(between, sizes, body):
    assert sizes(between(lambda _, h: body(h))) == {}


@pytest.mark.parametrize("body", OTHER_AXIS.values(), ids=OTHER_AXIS)
def test_statistics_over_another_axis_do_not(between, sizes, body):
    assert sizes(between(lambda m, h: m.last(body(h)))) == {"first": 8}

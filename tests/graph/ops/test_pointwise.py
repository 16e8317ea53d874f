import pytest
import torch
from torch import nn
from torch.nn import functional as F

BODIES = {
    "activation": F.silu,
    "broadcast": lambda h: h * h[:1] + h.amax(0),
    "where": lambda h: torch.where(h > 0.3, h, -h),
    "power": lambda h: h**2,
    "cast": lambda h: h.float().double(),
    "quantised": lambda h: torch.fake_quantize_per_tensor_affine(
        h.float(), 0.01, 0, 0, 255
    ).double(),
    "dropout": lambda h: F.dropout(h, 0.5, training=False),
    "normalised": lambda h: F.normalize(h, dim=1),
    "normalised by hand": lambda h: h / (h.norm(dim=1, keepdim=True) + 1e-6),
    "unit sum": lambda h: h / h.sum(1, keepdim=True).clamp(min=1e-3),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_units_pass_through(between, sizes, body):
    assert sizes(between(lambda m, h: m.last(body(h)))) == {"first": 8}


def test_gated_units_go_in_pairs(between, sizes):
    model = between(lambda m, h: m.last(F.glu(h)), read=4)
    assert sizes(model) == {"first": 4}


@pytest.mark.parametrize("parameters", [1, 8])
def test_slopes_follow_their_units(between, sizes, parameters):
    model = between(lambda m, h: m.last(m.slope(h - 1)))
    model.slope = nn.PReLU(parameters).double()
    assert sizes(model) == {"first": 8}

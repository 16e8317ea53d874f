import pytest
import torch
from torch import nn
from torch.nn import functional as F

BODIES = {
    "max pool": lambda h: F.max_pool2d(h, 2),
    "average pool": lambda h: F.avg_pool2d(h, 2),
    "adaptive pool": lambda h: F.adaptive_avg_pool2d(h, 2),
    "nearest": lambda h: F.interpolate(h, scale_factor=2.0),
    "bilinear": lambda h: F.interpolate(h, size=(5, 5), mode="bilinear"),
    "padding": lambda h: F.pad(h, (1, 0, 2, 1)),
    "padding with ones": lambda h: F.pad(h, (1, 0, 2, 1), value=1.0),
    "reflection": lambda h: F.pad(h, (1, 1, 1, 1), mode="reflect"),
    "grid": lambda h: F.grid_sample(
        h,
        F.affine_grid(
            torch.eye(2, 3).expand(2, 2, 3).to(h), h.shape, align_corners=False
        ),
        align_corners=False,
    ),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_channels_pass_through(sizes, body):
    class Image(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 7, 1), nn.Conv2d(7, 2, 1)

        def forward(self, x):
            return self.last(body(self.first(x).relu()))

    inputs = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    assert sizes(Image().double(), inputs) == {"first": 7}


def test_padded_channels_are_frozen(between, sizes):
    assert sizes(between(lambda m, h: m.last(F.pad(h, (1, 1))), read=10)) == {}

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffprune import find_groups

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


@pytest.mark.parametrize("value", [0.0, 0.5])
@pytest.mark.parametrize("amounts", [(1, 1), (2, 0), (0, 3)])
def test_padded_channels_are_between_constants(between, sizes, amounts, value):
    padded = between(
        lambda m, h: m.last(F.pad(h, amounts, value=value)), read=8 + sum(amounts)
    )
    assert sizes(padded) == {"first": 8}


def test_channels_that_are_mirrored_or_cropped_are_frozen(between, sizes):
    mirrored = between(lambda m, h: m.last(F.pad(h, (1, 1), "reflect")), read=10)
    assert sizes(mirrored) == {}
    assert sizes(between(lambda m, h: m.last(F.pad(h, (-1, 0))), read=7)) == {}


def test_a_padding_that_fills_up_to_a_width_freezes_the_channels(between, sizes):
    filled = between(lambda m, h: m.last(F.pad(h, (0, 10 - h.shape[1]))), read=10)
    assert sizes(filled) == {}


def test_patches_are_folded_into_channels(sizes):
    class Image(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(3, 28), nn.Conv2d(7, 2, 1)

        def forward(self, x):
            patches = self.first(x).relu().transpose(-1, -2)
            return self.last(F.fold(patches, (3, 4), 2, stride=(1, 2)))

    inputs = torch.randn(2, 4, 3, dtype=torch.float64)
    assert sizes(Image().double(), inputs) == {"first": 7}
    assert sizes(Image().double(), inputs[0]) == {"first": 7}


def test_channels_pass_by_windows_over_time(between, sizes):
    signal = torch.randn(2, 6, 4, dtype=torch.float64)
    model = between(lambda m, h: m.last(h.unfold(1, 3, 2).amax(-1)))
    assert sizes(model, signal) == {"first": 8}


STILL = {
    "convolution": nn.Conv1d(2, 2, 1),
    "same convolution": nn.Conv1d(2, 2, 1, padding="same"),
    "transposed": nn.ConvTranspose1d(2, 2, 1),
    "along another axis": nn.Conv2d(1, 1, (3, 1), padding=(1, 0)),
    "pool": nn.AvgPool2d((2, 1)),
    "pool by steps": nn.MaxPool2d((3, 1), stride=1),
}


@pytest.mark.parametrize("layer", STILL.values(), ids=STILL)
def test_windows_of_one_channel_let_channels_pass(between, sizes, layer):
    images = isinstance(layer, nn.Conv2d | nn.AvgPool2d | nn.MaxPool2d)
    signal = torch.randn(3, 1, 6, 4) if images else torch.randn(3, 2, 4)
    model = between(lambda m, h: m.last(m.mix(h)))
    model.mix = copy.deepcopy(layer).double()
    assert sizes(model, signal.double())["first"] == 8


MOVING = {
    "by steps": nn.Conv1d(2, 2, 1, stride=2),
    "with ends": nn.Conv1d(2, 2, 1, padding=1),
    "wide": nn.Conv1d(2, 2, 3, padding=1),
    "transposed by steps": nn.ConvTranspose1d(2, 2, 1, stride=2),
    "pool by steps": nn.MaxPool1d(1, stride=2),
}


@pytest.mark.parametrize("layer", MOVING.values(), ids=MOVING)
def test_windows_that_leave_channels_out_or_mix_them_freeze_these(between, layer):
    model = between(lambda m, h: m.mix(h))
    model.mix = copy.deepcopy(layer).double()
    groups = find_groups(model, torch.randn(3, 2, 4).double())
    assert len(groups) == 0
    assert "used as positions" in next(str(a) for a in groups.frozen if a.size == 8)


def test_windows_over_channels_are_positions(between, reason):
    model = between(lambda m, h: m.last(h.unfold(1, 2, 2).flatten(1)))
    assert "used as positions" in reason(model)

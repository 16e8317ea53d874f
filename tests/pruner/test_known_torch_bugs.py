import warnings

import pytest
import torch
from torch import nn

from diffprune import Pruner


class Strided(nn.Module):
    """A strided 1x1 convolution behind one that can shrink."""

    def __init__(self, stride=2):
        super().__init__()
        self.conv = nn.Conv2d(3, 31, 3)
        self.shortcut = nn.Conv2d(31, 5, 1, stride=stride)

    def forward(self, x):
        return self.shortcut(self.conv(x).relu()).mean((2, 3))


def shrink(model, left):
    """Remove all but a few units of the first convolution."""
    pruner = Pruner(model, torch.randn(2, 3, 9, 9), strength=1e-5)
    with torch.no_grad():
        pruner.gates["conv"].logits[left:] = -5.0
    pruner.remove_closed_()
    assert model.conv.out_channels == left
    return model


def channels_last(model):
    return model.to(memory_format=torch.channels_last)


def test_a_kernel_that_torch_gets_wrong_is_named_with_a_way_out():
    with pytest.warns(UserWarning, match="`shortcut` now has fewer than") as caught:
        model = shrink(channels_last(Strided()), 5)
    assert "memory_format=torch.contiguous_format" in str(caught[0].message)
    assert caught[0].filename == __file__
    safe = model.to(memory_format=torch.contiguous_format)
    safe(torch.randn(2, 3, 9, 9)).sum().backward()


@pytest.mark.parametrize(
    ("model", "left"),
    [
        (Strided(), 5),
        (channels_last(Strided()), 17),
        (channels_last(Strided(stride=1)), 5),
    ],
    ids=["channels first", "wide enough", "no stride"],
)
def test_other_kernels_are_left_in_peace(model, left):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shrink(model, left)

import pytest
import torch
from torch import nn

from diffprune._surgery.replacement_modules import Stub


@pytest.mark.parametrize("x", [torch.randn(3, 5), torch.full((2, 3), torch.inf)])
def test_zeros_of_the_shape_of_the_input(x):
    zeros = Stub().build()(x)
    assert torch.equal(zeros, torch.zeros_like(x))
    assert zeros.data_ptr() != x.data_ptr()


@pytest.mark.parametrize(
    "convs",
    [
        [nn.Conv1d(3, 5, 5, padding=2, stride=3)],
        [nn.Conv2d(3, 7, 3, padding=1, stride=2)],
        [nn.Conv2d(3, 5, 1, stride=(1, 3)), nn.Conv2d(5, 2, 3, 2, 2, dilation=2)],
        [nn.Conv3d(3, 4, (1, 3, 5), padding=(0, 1, 2), stride=(2, 1, 2))],
    ],
)
@pytest.mark.parametrize("length", range(5, 12))
def test_zeros_of_the_shape_that_convolutions_return(convs, length):
    rank = len(convs[0].kernel_size)
    strides = [1] * rank
    for conv in convs:
        strides = [a * b for a, b in zip(strides, conv.stride, strict=True)]
    x = torch.randn(2, 3, *(length + i for i in range(rank)))
    expected = torch.zeros_like(nn.Sequential(*convs)(x))
    zeros = Stub(tuple(strides), convs[-1].out_channels - 3).build()(x)
    assert torch.equal(zeros, expected)


@pytest.mark.parametrize("wider", [-2, 2])
def test_zeros_of_another_width(wider):
    assert Stub(wider=wider).build()(torch.randn(2, 4, 5)).shape == (2, 4, 5 + wider)


def test_nothing_to_learn():
    assert not list(Stub((2,), 3).build().state_dict())

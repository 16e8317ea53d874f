import pytest
import torch
from torch import nn

from diffprune._surgery.hooks import hooked


@pytest.mark.parametrize("width", [3, 4])
def test_hooks_are_gone_when_the_block_ends_or_fails(width):
    layer, calls = nn.Linear(3, 2), []
    handle = layer.register_forward_pre_hook(lambda *_: calls.append(1))
    try:
        with hooked([handle]):
            layer(torch.ones(width))
    except RuntimeError:
        assert width == 4
    layer(torch.ones(3))
    assert calls == [1]

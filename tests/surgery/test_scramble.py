import copy

import pytest
import torch
from torch import nn

from diffprune._surgery import scramble
from diffprune._surgery.scramble import scrambled


def network():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    nn.init.zeros_(model[2].weight)
    return model


def test_nothing_is_zero_or_constant_and_the_model_stays_as_it_was():
    model = network()
    before = copy.deepcopy(model.state_dict())
    other = scrambled(model)
    for name, tensor in other.state_dict().items():
        if tensor.is_floating_point():
            assert (tensor != 0).all(), name
            assert tensor.unique().numel() == tensor.numel(), name
    assert (other[1].running_var > 0).all()
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)


def test_scales_keep_their_sign():
    model = nn.BatchNorm1d(50)
    nn.init.constant_(model.weight, -1e-6)
    assert (scrambled(model).weight < 0).all()


def test_zeros_can_be_kept():
    model = network()
    with torch.no_grad():
        model[0].weight[1] = 0
    other = scrambled(model, keep_zeros=True)
    assert not other[0].weight[1].any()
    assert other[0].weight[0].all()
    assert not other[2].weight.any()


@pytest.mark.parametrize("shape", [(1, 0, 3), (0, 3), (0,)])
def test_parameters_without_elements_stay_so(shape):
    model = nn.Module()
    model.tokens = nn.Parameter(torch.empty(shape))
    assert scrambled(model).tokens.shape == shape


def test_noise_is_far_from_zero_even_where_the_middle_is_drawn(monkeypatch):
    halves = torch.full((3,), 0.5)
    monkeypatch.setattr(torch, "rand", lambda *_, **__: halves)
    noise = scramble._noise(torch.zeros(3), torch.Generator())
    assert bool((noise.abs() > 0.09).all())

"""The schedule of gradual magnitude pruning, and the units it closes."""

from functools import partial

import pytest
import torch

import diffprune as dp
from paper.methods.gradual_magnitude import (
    MagnitudeGate,
    close_smallest_,
    share_closed,
)
from paper.models.lenet5 import LeNet5


def test_the_schedule_is_a_cubic():
    assert share_closed(0.25, 0.8, 0.0, 0.5) == pytest.approx(0.875 * 0.8)
    assert share_closed(0.0, 0.8, 0.0, 0.5) == 0.0
    assert share_closed(0.9, 0.8, 0.0, 0.5) == pytest.approx(0.8)


def test_the_smallest_units_close_and_may_return():
    torch.manual_seed(0)
    model = LeNet5(partial(MagnitudeGate, share=0.5))
    close_smallest_(model, 0.2)
    gate = model.gate_conv1
    lengths = model.conv1.weight.flatten(1).norm(dim=1)
    closed = ~gate.is_open()
    assert 0 < int(closed.sum()) < 10
    assert lengths[closed].max() < lengths[~closed].min()
    assert gate.reopening().min() == 1
    model.conv1.weight.data[closed] *= 10
    close_smallest_(model, 0.5)
    assert gate.is_open()[closed].all()
    assert int((~gate.is_open()).sum()) == 10
    assert gate.reopening()[~gate.is_open()].max() == 0
    before = gate.open.clone()
    close_smallest_(model, 0.9)
    assert torch.equal(gate.open, before)


def test_what_it_closed_is_removed():
    torch.manual_seed(0)
    model = LeNet5(partial(MagnitudeGate, share=0.5)).eval()
    images = torch.rand(4, 1, 28, 28)
    pruner = dp.Pruner(model, images, strength=0.0)
    close_smallest_(model, 0.5)
    expected = model(images)
    small = pruner.finalize()
    assert small.conv1.out_channels == 10
    assert small.fc1.out_features == 250
    torch.testing.assert_close(small(images), expected, atol=1e-5, rtol=1e-4)


def test_a_layer_keeps_one_unit():
    gate = MagnitudeGate(4, share=1.0)
    gate.close_smallest_(torch.tensor([3.0, 1.0, 4.0, 2.0]), 0.5)
    assert gate.is_open().tolist() == [False, False, True, False]

"""Gates behind gates: what the first closes, the second has nothing left to do for."""

import torch

from diffprune import Gate, Pruner
from paper.models.lenet5 import LeNet5


def close(gate, units):
    with torch.no_grad():
        gate.logits[units] = -5.0


def test_features_of_a_closed_filter_go_though_their_own_gates_are_open():
    torch.manual_seed(0)
    model, x = LeNet5(gate=Gate).double().eval(), torch.rand(3, 1, 28, 28).double()
    pruner = Pruner(model, x, strength=1e-5)
    close(model.gate_conv2, slice(10, 50))
    before = model(x)
    small = pruner.finalize()
    assert small.conv2.out_channels == 10
    assert small.fc1.in_features == 160
    torch.testing.assert_close(small(x), before, rtol=1e-10, atol=1e-12)


def test_filters_go_whose_features_are_all_closed():
    torch.manual_seed(0)
    model, x = LeNet5(gate=Gate).double().eval(), torch.rand(3, 1, 28, 28).double()
    pruner = Pruner(model, x, strength=1e-5)
    close(model.gate_flat, slice(16 * 7, 800))
    before = model(x)
    small = pruner.finalize()
    assert small.conv2.out_channels == 7
    assert small.fc1.in_features == 16 * 7
    torch.testing.assert_close(small(x), before, rtol=1e-10, atol=1e-12)


def test_an_unread_open_unit_still_counts_in_the_mean_of_its_gate():
    torch.manual_seed(0)
    model, x = LeNet5(gate=Gate).double().eval(), torch.rand(3, 1, 28, 28).double()
    pruner = Pruner(model, x, remove_every=1, strength=1e-5)
    optimizer = torch.optim.SGD(pruner.parameter_groups(lr=0.1))
    close(model.gate_flat, slice(16 * 7, 800))
    before = model(x)
    pruner.step(optimizer)
    assert pruner.shape().units["gate_conv2"] == 7
    assert model.gate_conv2.size == 50
    torch.testing.assert_close(model(x), before, rtol=1e-10, atol=1e-12)

"""Prices of constrained densities: they rise, restart, are saved, and meet limits."""

import copy

import pytest
import torch
from torch import nn, optim

import diffprune as dp
from paper.methods.constrained_l0 import ConstrainedGate, ascend_


def test_a_violation_raises_its_price_until_the_constraint_holds():
    gate = ConstrainedGate(10, density=0.5, dual_lr=0.1)
    gap = gate.violation().item()
    assert gap == pytest.approx(0.3318, abs=0.01)
    gate.ascend_()
    gate.ascend_()
    assert gate.multiplier.weight.item() == pytest.approx(0.2 * gap, rel=1e-4)
    assert gate.penalty().item() == pytest.approx(0.2 * gap**2, rel=1e-3)
    gate.gate.log_alpha.data.fill_(-4.0)
    gate.ascend_()
    assert gate.multiplier.weight.item() == 0.0


def test_removed_units_count_as_closed():
    gate = ConstrainedGate(10, density=0.5)
    gate.gate.log_alpha.data[:4] = -9.0
    before = gate.violation().item()
    gate.keep_(gate.is_open())
    assert gate.size == 6
    assert gate.violation().item() == pytest.approx(before, abs=0.04)


def test_elements_follow_the_units_that_they_belong_to():
    gate = ConstrainedGate(4, density=0.5).eval()
    gate.index = torch.tensor([1, 3, 3])  # as after a removal: two units are not read
    gate.gate.log_alpha.data.copy_(torch.tensor([-9.0, 1.0, 9.0, 2.0]))
    expected = gate(torch.ones(1, 3))
    gate.keep_(gate.is_open())
    assert gate.index.tolist() == [0, 2, 2]
    assert torch.equal(gate(torch.ones(1, 3)), expected)


def test_units_of_a_narrowed_stream_close_one_by_one():
    torch.manual_seed(0)
    layers = (
        nn.Conv2d(1, 3, 3), nn.ReLU(), ConstrainedGate(3, density=0.5), nn.Flatten(),
        ConstrainedGate(12, density=0.5), nn.Linear(12, 2),
    )  # fmt: skip
    model = nn.Sequential(*layers).eval()
    x = torch.randn(5, 1, 4, 4)
    pruner = dp.Pruner(model, x, strength=1.0)
    for logits, unit in ((layers[2].gate, 0), (layers[4].gate, 11)):
        logits.log_alpha.data[unit] = -9.0
        expected = model(x)
        pruner.finalize() if unit else pruner.remove_closed_()
        torch.testing.assert_close(model(x), expected)


def test_densities_are_met_in_training():
    torch.manual_seed(0)
    layers = nn.Linear(5, 20), nn.ReLU(), ConstrainedGate(20, density=0.3, dual_lr=0.5)
    model = nn.Sequential(*layers, nn.Linear(20, 2))
    x = torch.randn(64, 5)
    pruner = dp.Pruner(model, x[:4], strength=1.0)
    optimizer = optim.Adam(pruner.parameter_groups(lr=0.02))
    assert not any(
        p is model[2].multiplier.weight for p in model.parameters() if p.requires_grad
    )
    for _ in range(200):
        loss = (model(x) - x[:, :2]).square().mean() + pruner.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ascend_(model)
        pruner.step(optimizer)
    assert model[2].violation().item() < 0.05
    state = copy.deepcopy(model[2].state_dict())
    assert "multiplier.weight" in state
    assert pruner.finalize()[0].out_features < 20


def test_prices_rise_as_slowly_as_published():
    gate = ConstrainedGate(10, density=0.5)
    gap = gate.violation().item()
    gate.ascend_()
    assert gate.multiplier.weight.item() == pytest.approx(1e-4 * gap, rel=1e-4)

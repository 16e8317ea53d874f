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

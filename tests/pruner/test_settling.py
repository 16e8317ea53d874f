"""Once a budget is met for good: a plain model, fitted, that goes on training."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import diffprune as dp
from diffprune._pruner import pruner as pruner_module
from diffprune._pruner.data_parallel import Notice
from diffprune._pruner.gate_sites import NAME

X = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] * X[:, 1] > 0).long()
STEPS = 30


def net(*, gates=False):
    torch.manual_seed(0)
    layers = [nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 20), nn.ReLU()]
    if gates:
        layers = [*layers[:2], dp.Gate(24), *layers[2:], dp.Gate(20)]
    return nn.Sequential(*layers, nn.Linear(20, 2))


def begin(model=None, **options):
    asked = {"macs": 0.3, "steps": STEPS, "pretrained": True, **options}
    pruner = dp.Pruner(model or net(), X[:4], budget=dp.Budget(**asked))
    return pruner, torch.optim.Adam(pruner.parameter_groups(lr=1e-2))


def train(pruner, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        (cross_entropy(pruner.model(X), Y) + pruner.penalty()).backward()
        optimizer.step()
        pruner.step(optimizer)


def is_plain(model):
    has_gates = any(
        isinstance(m, dp.Gate) or NAME in m._modules for m in model.modules()
    )
    hooks = [
        hook
        for m in model.modules()
        for hook in (*m._forward_hooks.values(), *m._forward_pre_hooks.values())
        # It looks for wrappers until `finalize`.
        if not isinstance(hook, Notice)
    ]
    return not has_gates and not hooks


@pytest.mark.parametrize("gates", [False, True])
@pytest.mark.parametrize("pretrained", [False, True])
def test_a_model_that_has_met_its_budget_is_plain_and_goes_on_training(
    gates, pretrained
):
    pruner, optimizer = begin(net(gates=gates), pretrained=pretrained)
    assert not is_plain(pruner.model)
    train(pruner, optimizer, 20)
    assert pruner.controller.phase == "recovery"
    assert is_plain(pruner.model)
    before = pruner.model[0].weight.detach().clone()
    train(pruner, optimizer, STEPS - 20)
    assert not torch.equal(pruner.model[0].weight, before)
    assert 0.97 <= pruner.controller.used()["macs"] <= 1
    assert pruner.shape().units == pruner.history[-1].units
    assert "(met)" in pruner.summary()
    assert pruner.remove_closed_(optimizer) is None
    small = pruner.finalize(optimizer)
    assert is_plain(small)
    dp.Pruner(small, X[:4], strength=1e-4)  # it belongs to nobody


def test_a_trained_network_is_small_as_soon_as_enough_was_seen():
    pruner, optimizer = begin(steps=100)
    train(pruner, optimizer, 3)
    assert pruner.controller.phase == "warm-up"
    train(pruner, optimizer, 1)  # 4 * 64 examples
    assert pruner.controller.phase == "recovery"
    assert len(pruner.history) == 1


def test_layers_are_fitted_to_what_they_returned(monkeypatch):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        cross_entropy(model(X), Y).backward()
        optimizer.step()
    errors = {}
    fold = pruner_module.fold_and_refit_
    for name in ("fitted", "not"):
        monkeypatch.setattr(
            pruner_module,
            "fold_and_refit_",
            lambda gated, kept, before, optimizers, name=name: fold(
                gated, kept, before if name == "fitted" else None, optimizers
            ),
        )
        pruner, _ = begin(copy.deepcopy(model))
        nothing = torch.optim.SGD(pruner.parameter_groups(lr=0.0))
        train(pruner, nothing, 4)
        assert is_plain(pruner.model)
        errors[name] = (pruner.model(X) - model(X)).detach().square().mean()
    assert errors["fitted"] < 0.5 * errors["not"]


def test_a_refit_that_fails_leaves_the_cut_model_and_says_so(monkeypatch):
    def broken(small, *_):
        with torch.no_grad():
            small[0].weight.zero_()
        raise dp.errors.ArgumentError("no")

    monkeypatch.setattr("diffprune._pruner.settling.refit_", broken)
    pruner, optimizer = begin()
    with pytest.warns(UserWarning, match="layers were not fitted"):
        train(pruner, optimizer, 4)
    assert pruner.model[0].weight.any()


@pytest.mark.parametrize("gates", [False, True])
@pytest.mark.parametrize("when", [2, 10])
def test_a_run_is_resumed_before_and_after(tmp_path, when, gates):
    pruner, optimizer = begin(net(gates=gates))
    train(pruner, optimizer, when)
    dp.save_checkpoint(tmp_path / "run.pt", pruner, optimizer)
    train(pruner, optimizer, STEPS - when)
    fresh, other = begin(net(gates=gates))
    dp.load_checkpoint(tmp_path / "run.pt", fresh, other)
    assert is_plain(fresh.model) == (when == 10)
    train(fresh, other, STEPS - when)
    expected, found = pruner.model.state_dict(), fresh.model.state_dict()
    assert expected.keys() == found.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert fresh.finalize()(X).equal(pruner.finalize()(X))


def test_of_several_budgets_only_the_last_takes_the_gates_away():
    found = {}
    budgets = [dp.Budget(macs=part, steps=20, pretrained=True) for part in (0.6, 0.3)]
    pruner = dp.Pruner(
        net(),
        X[:4],
        budget=budgets,
        on_budget=lambda budget, small: found.update({budget.macs: is_plain(small)}),
    )
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-2))
    train(pruner, optimizer, 20)
    assert not is_plain(pruner.model)
    train(pruner, optimizer, 20)
    assert is_plain(pruner.model)
    assert found == {0.6: True, 0.3: True}
    assert pruner.controller.phase == "met"


def test_averages_of_the_model_follow():
    pruner, optimizer = begin()
    average = torch.optim.swa_utils.AveragedModel(pruner.model)
    pruner.add_copy(average)
    train(pruner, optimizer, 6)
    average.update_parameters(pruner.model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert average(X).shape == (64, 2)

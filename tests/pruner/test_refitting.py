"""When units leave for a budget, layers are fitted; in the end the model is plain."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import diffprune as dp
from diffprune._choice import refit_
from diffprune._core.modules import GATES
from diffprune._pruner import budget_run
from diffprune._pruner.data_parallel import Notice
from diffprune._pruner.refitting import refit_kept_

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
        isinstance(m, dp.Gate) or GATES in m._modules for m in model.modules()
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


@pytest.mark.parametrize("gates", [False, True])
@pytest.mark.parametrize("pretrained", [False, True])
def test_layers_are_fitted_to_what_they_returned(monkeypatch, pretrained, gates):
    model = net(gates=gates)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        cross_entropy(model(X), Y).backward()
        optimizer.step()
    errors = {}
    for name in ("fitted", "not"):
        if name == "not":
            monkeypatch.setattr(budget_run, "refit_kept_", lambda *_: None)
        pruner, _ = begin(copy.deepcopy(model), pretrained=pretrained)
        nothing = torch.optim.SGD(pruner.parameter_groups(lr=0.0))
        whole = pruner.model(X)
        train(pruner, nothing, 12)
        assert is_plain(pruner.model)
        errors[name] = (pruner.model(X) - whole).detach().square().mean()
    assert errors["fitted"] < 0.5 * errors["not"]


@pytest.mark.parametrize("pretrained", [False, True])
def test_with_batch_norms_only_trained_networks_are_fitted(monkeypatch, pretrained):
    fitted = []
    monkeypatch.setattr(budget_run, "refit_kept_", lambda *_: fitted.append(1))
    model = nn.Sequential(nn.Linear(6, 24), nn.BatchNorm1d(24), nn.Linear(24, 2))
    pruner, optimizer = begin(model, pretrained=pretrained)
    train(pruner, optimizer, STEPS)
    assert pruner.history
    assert bool(fitted) == pretrained


@pytest.mark.parametrize("gates", [False, True])
def test_gates_stay_what_they_are_when_the_weights_behind_them_are_fitted(
    gates, monkeypatch
):
    pruner, optimizer = begin(net(gates=gates), pretrained=False, steps=100)
    with torch.no_grad():
        for gate in pruner.gates.values():
            gate.logits += torch.linspace(-1, 1, gate.size)
    gaps = []

    def compared(gated, before):
        values = {name: gate.values().clone() for name, gate in pruner.gates.items()}
        plain = gated.without_gates()
        kept = gated.last_cut.tensors
        refit_(plain, before.whole, kept, before.inputs, rows_per_feature=4.0)
        found = refit_kept_(gated, before)
        gaps.append((pruner.model(X) - plain(X)).detach().abs().max())
        for name, gate in pruner.gates.items():
            assert torch.equal(gate.values(), values[name])
        return found

    monkeypatch.setattr(budget_run, "refit_kept_", compared)
    train(pruner, optimizer, 12)
    assert len(gaps) == 1
    assert gaps[0] < 1e-5


def test_a_refit_that_fails_leaves_the_cut_model_and_says_so(monkeypatch):
    def broken(small, *_, **__):
        with torch.no_grad():
            small[0].weight.zero_()
        raise dp.errors.ArgumentError("no")

    monkeypatch.setattr("diffprune._pruner.refitting.refit_", broken)
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

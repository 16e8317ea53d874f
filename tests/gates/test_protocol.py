"""Gates of other people: whatever has the members of `GateLike` can be pruned with."""

import copy

import pytest
import torch
from torch import nn, optim

import diffprune as dp
from diffprune.gates import GateLike


class HardConcrete(nn.Module):
    """The L0 gate of Louizos et al. (2018): stretched and clipped at zero and one."""

    LOW, HIGH, TEMPERATURE = -0.1, 1.1, 2 / 3

    def __init__(self, size):
        super().__init__()
        self.log_alpha = nn.Parameter(2.0 + 0.01 * torch.randn(size))

    @property
    def size(self):
        return len(self.log_alpha)

    def values(self):
        logits = self.log_alpha
        if self.training:
            u = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
            logits = (u.logit() + logits) / self.TEMPERATURE
        return (logits.sigmoid() * (self.HIGH - self.LOW) + self.LOW).clamp(0, 1)

    def is_open(self):
        return self.margin() > 0

    def margin(self):
        return self.log_alpha - torch.tensor(-self.LOW / self.HIGH).log()

    def penalty(self):
        shift = self.TEMPERATURE * torch.tensor(-self.LOW / self.HIGH).log()
        return (self.log_alpha - shift).sigmoid().sum()

    def reopening(self):
        shift = self.TEMPERATURE * torch.tensor(-self.LOW / self.HIGH).log()
        return (self.log_alpha - shift).sigmoid()

    def keep_(self, mask):
        self.log_alpha = nn.Parameter(self.log_alpha.detach()[mask])


@pytest.fixture
def pruner():
    torch.manual_seed(0)
    layers = nn.Linear(5, 11), nn.ReLU(), nn.Linear(11, 7), nn.ReLU(), nn.Linear(7, 3)
    model = nn.Sequential(*layers).double()
    x = torch.randn(4, 5).double()
    return dp.Pruner(model, x, strength=1e-2, gate=lambda g: HardConcrete(g.size))


def test_it_has_what_a_gate_has():
    assert isinstance(HardConcrete(3), GateLike)
    assert not isinstance(nn.Linear(3, 3), GateLike)


def test_its_units_are_removed_exactly_with_its_optimizer_state(pruner):
    model, x = pruner.model, pruner.example_inputs
    optimizer = optim.Adam(pruner.parameter_groups(lr=1e-2))
    (model(x).square().mean() + pruner.penalty()).backward()
    optimizer.step()
    gate = pruner.gates["0"]
    gate.log_alpha.data[[1, 4]] = -20.0
    moments = optimizer.state[gate.log_alpha]["exp_avg"].clone()
    expected = copy.deepcopy(model).eval()(x)
    record = pruner.remove_closed_(optimizer)
    assert record.units == {"0": 9, "2": 7}
    stays = [0, 2, 3, *range(5, 11)]
    assert pruner.kept["0"].tolist() == stays
    assert torch.equal(
        optimizer.state[gate.log_alpha]["exp_avg"], moments[torch.tensor(stays)]
    )
    torch.testing.assert_close(model.eval()(x), expected, rtol=0, atol=1e-12)


def test_it_is_trained_and_not_decayed(pruner):
    _, gates = pruner.parameter_groups(weight_decay=0.1)
    own = {id(gate.log_alpha) for gate in pruner.gates.values()}
    assert {id(parameter) for parameter in gates["params"]} == own
    assert gates["weight_decay"] == 0.0
    pruner.penalty().backward()
    assert all(gate.log_alpha.grad.abs().sum() > 0 for gate in pruner.gates.values())


def test_it_is_folded_away(pruner):
    model, x = pruner.model.eval(), pruner.example_inputs
    pruner.gates["2"].log_alpha.data[0] = -20.0
    expected = model(x)
    small = pruner.finalize()
    torch.testing.assert_close(small(x), expected, rtol=0, atol=1e-12)
    assert small[2].out_features == 6
    assert not any(isinstance(module, HardConcrete) for module in small.modules())


class Doubled(dp.Gate):
    """A class that is made of diffprune's own has formulas of its own."""

    def __init__(self, size):
        super().__init__(size)
        self.twice = nn.Parameter(torch.full((size,), 2.0))

    def values(self):
        return super().values() * self.twice

    def penalty(self):
        return super().penalty() * 10


@pytest.mark.parametrize("is_placed", [True, False])
def test_formulas_of_a_subclass_are_used(is_placed):
    torch.manual_seed(0)
    layers = [nn.Linear(5, 11), nn.ReLU(), nn.Linear(11, 3)]
    gate = Doubled(11)
    if is_placed:
        layers.insert(2, gate)
    x, model = torch.randn(4, 5), nn.Sequential(*layers)
    expected = layers[-1](2 * layers[0](x).relu())
    options = {} if is_placed else {"gate": lambda _: gate}
    pruner = dp.Pruner(model, x, strength=1.0, **options)
    torch.testing.assert_close(model(x), expected, atol=0.2, rtol=0)
    torch.testing.assert_close(pruner.penalty(), gate.penalty())
    model(x).sum().backward()
    assert gate.twice.grad is not None


def test_a_budget_steers_a_subclass():
    torch.manual_seed(0)
    model, x = (
        nn.Sequential(nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 3)),
        torch.eye(5),
    )
    budget = dp.Budget(macs=0.5, steps=6)
    pruner = dp.Pruner(model, x, budget=budget, gate=lambda group: Doubled(group.size))
    optimizer = optim.Adam(pruner.parameter_groups(lr=1e-2))
    for _ in range(6):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        pruner.step(optimizer)
    assert pruner.finalize(optimizer)[0].out_features == 6


def test_a_budget_cannot_steer_it():
    model = nn.Sequential(nn.Linear(5, 11), nn.ReLU(), nn.Linear(11, 3))
    before = str(model)
    with pytest.raises(dp.errors.ArgumentError, match=r"no other\.\nUse `strength=`"):
        dp.Pruner(
            model,
            torch.rand(2, 5),
            budget=dp.Budget(macs=0.5, steps=9),
            gate=lambda group: HardConcrete(group.size),
        )
    assert str(model) == before
    assert dp.Pruner(model, torch.rand(2, 5), strength=1e-4).gates

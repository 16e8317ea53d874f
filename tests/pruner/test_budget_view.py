"""Budgets of models that have gates of their own."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

import diffprune as dp
from diffprune.errors import ArgumentError

STEPS = 60
X = torch.randn(32, 1, 8, 8, generator=torch.Generator().manual_seed(0))
Y = (X.mean((1, 2, 3)) > 0).long()


def gated(**options):
    """conv 13 -> gate -> conv 17 -> gate -> flat 272 -> gate -> fc 41 -> gate -> fc."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 13, 3),
        nn.ReLU(),
        dp.Gate(13, **options),
        nn.Conv2d(13, 17, 3),
        nn.ReLU(),
        dp.Gate(17, **options),
        nn.Flatten(),
        dp.Gate(272, **options),
        nn.Linear(272, 41),
        nn.ReLU(),
        dp.Gate(41, **options),
        nn.Linear(41, 2),
    )


def train(pruner, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        (cross_entropy(pruner.model(X), Y) + pruner.penalty()).backward()
        optimizer.step()
        pruner.step(optimizer)


def count(model):
    with FlopCounterMode(display=False) as counter:
        model(X[:1])
    return {
        "macs": counter.get_total_flops() // 2,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }


@pytest.mark.parametrize("options", [{}, {"dropout": 0.15}], ids=["plain", "noisy"])
@pytest.mark.parametrize(
    "asked", [{"macs": 0.5}, {"parameters": 0.05}, {"parameters": 0.1, "macs": 0.1}]
)
def test_placed_gates_meet_budgets(asked, options):
    budget = dp.Budget(**asked, steps=STEPS)
    pruner = dp.Pruner(gated(**options), X[:4], budget=budget)
    whole = {limit.name: limit.whole for limit in pruner.controller.limits}
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-3))
    train(pruner, optimizer, STEPS)
    cost = count(pruner.finalize())
    used = [cost[name] / whole[name] / part for name, part in asked.items()]
    assert 0.95 <= max(used) <= 1


def test_a_floor_is_filled_with_units_that_stay_connected():
    """Features of filters that are to leave go before features of those that stay."""
    model = gated()
    for place, least in {2: 4, 5: 5, 7: 60}.items():
        model[place].min_open = least
    with torch.no_grad():
        model[8].weight[:, : 12 * 16] *= 3  # features are not worth what filters are
        model[3].weight[:12] *= 0.3
    budget = dp.Budget(parameters=0.08, macs=0.13, steps=STEPS)
    pruner = dp.Pruner(model, X[:4], budget=budget)
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-3))
    train(pruner, optimizer, STEPS)
    assert pruner.finalize()[8].in_features >= 60


def test_a_floor_holds_units_that_nobody_reads_any_more():
    model = gated()
    floor = model[5]
    floor.min_open = 15
    with torch.no_grad():
        model[8].weight[:, 9 * 16 :] *= 50  # hardly anybody reads nine of the filters
    budget = dp.Budget(parameters=0.1, steps=STEPS)
    pruner = dp.Pruner(model, X[:4], budget=budget)
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-3))
    train(pruner, optimizer, STEPS)
    assert int(floor.is_open().sum()) >= 15  # as it was when it was folded away
    assert pruner.finalize()[3].out_channels < 15


def test_gates_cost_nothing():
    pruner = dp.Pruner(
        gated(), X[:4], budget=dp.Budget(macs=0.9, parameters=0.9, steps=STEPS)
    )
    plain = nn.Sequential(*(m for m in gated() if not isinstance(m, dp.Gate)))
    wholes = {limit.name: limit.whole for limit in pruner.controller.limits}
    assert wholes == count(plain)


def test_a_run_with_a_budget_resumes():
    def start():
        pruner = dp.Pruner(
            gated(), X[:4], budget=dp.Budget(parameters=0.1, steps=STEPS)
        )
        return pruner, torch.optim.Adam(pruner.parameter_groups(lr=1e-3))

    whole, optimizer = start()
    train(whole, optimizer, STEPS // 3)
    saved = copy.deepcopy(
        (whole.state_dict(), whole.model.state_dict(), optimizer.state_dict())
    )
    train(whole, optimizer, STEPS - STEPS // 3)
    resumed, other = start()
    resumed.load_state_dict(saved[0], other)
    resumed.model.load_state_dict(saved[1])
    other.load_state_dict(saved[2])
    train(resumed, other, STEPS - STEPS // 3)
    assert torch.equal(whole.finalize()(X), resumed.finalize()(X))


class Stream(nn.Module):
    """x -> fc -> gate -> (+ fc) -> gate -> fc: both gates decide about one stream."""

    def __init__(self):
        super().__init__()
        self.fc1, self.first = nn.Linear(5, 7), dp.Gate(7)
        self.fc2, self.second = nn.Linear(7, 7), dp.Gate(7)
        self.fc3 = nn.Linear(7, 2)

    def forward(self, x):
        x = self.first(self.fc1(x))
        return self.fc3(self.second(x + self.fc2(x)))


def test_gates_that_share_units_are_left_to_strengths():
    with pytest.raises(ArgumentError, match="`first` and `second` decide about the"):
        dp.Pruner(Stream(), torch.rand(2, 5), budget=dp.Budget(macs=0.9, steps=STEPS))


def test_a_gate_on_what_cannot_be_cut_is_left_to_strengths():
    model = nn.Sequential(nn.Linear(3, 5), dp.Gate(5), nn.Linear(5, 2), dp.Gate(2))
    with pytest.raises(ArgumentError, match="what gate `3` closes cannot be removed"):
        dp.Pruner(model, torch.rand(2, 3), budget=dp.Budget(macs=0.9, steps=STEPS))


class Beside(nn.Module):
    """Two layers whose outputs are added, one of them behind a gate."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.gate = nn.Linear(5, 7), nn.Linear(5, 7), dp.Gate(7)
        self.fc3 = nn.Linear(7, 2)

    def forward(self, x):
        return self.fc3(self.fc1(x) + self.gate(self.fc2(x)))


def test_a_gate_beside_what_has_none_is_left_to_strengths():
    with pytest.raises(ArgumentError, match="what gate `gate` closes stays"):
        dp.Pruner(Beside(), torch.rand(2, 5), budget=dp.Budget(macs=0.6, steps=STEPS))

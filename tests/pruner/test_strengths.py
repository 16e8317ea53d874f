import copy

import pytest
import torch
from torch import nn, optim

import diffprune as dp
from diffprune.errors import ArgumentError, UnknownNameError

X = torch.rand(4, 3)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2))


def make(**options):
    pruner = dp.Pruner(net(), X, **options)
    return pruner, optim.Adam(pruner.parameter_groups(lr=1e-3, gate_lr=0.0))


def step(pruner, optimizer):
    """A step; what the penalty was, per open unit."""
    optimizer.zero_grad()
    penalty = pruner.penalty()
    (pruner.model(X).square().mean() + penalty).backward()
    optimizer.step()
    pruner.step(optimizer)
    return float((penalty / pruner.gates["0"].penalty()).detach())


def test_a_strength_may_follow_progress():
    pruner, optimizer = make(strength=lambda progress: 1e-3 * progress, steps=4)
    found = [step(pruner, optimizer) for _ in range(6)]
    expected = [0.0, 2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3]
    assert found == pytest.approx(expected, rel=1e-5)


def test_what_it_returns_may_depend_on_the_group():
    def scheduled(progress):
        return {"0": dp.by_macs(1e-4 * (1 - progress))}

    pruner, optimizer = make(strength=scheduled, steps=2)
    macs = pruner.units()[0].macs
    found = [step(pruner, optimizer) for _ in range(3)]
    assert found == pytest.approx([1e-4 * macs, 5e-5 * macs, 0.0])


def test_a_removal_goes_on_with_the_strength_of_its_step():
    pruner, optimizer = make(
        strength=lambda progress: 1e-3 * progress, steps=4, remove_every=1
    )
    with torch.no_grad():
        pruner.gates["0"].logits[0] -= 5.0
    found = [step(pruner, optimizer) for _ in range(3)]
    assert pruner.gates["0"].size == 5
    assert found[2] == pytest.approx(5e-4)


def test_a_resumed_run_goes_on_where_it_was():
    options = {"strength": lambda progress: 1e-3 * progress, "steps": 10}
    pruner, optimizer = make(**options)
    for _ in range(3):
        step(pruner, optimizer)
    state = copy.deepcopy(pruner.state_dict())
    other, its_optimizer = make(**options)
    other.load_state_dict(state, its_optimizer)
    other.model.load_state_dict(pruner.model.state_dict())
    assert step(other, its_optimizer) == step(pruner, optimizer) == pytest.approx(3e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strength": 1e-4, "steps": 5}, "strength=0.0001 is none"),
        ({"strength": lambda p: 1e-4 * p, "steps": 0}, "steps must be a whole number"),
        ({"strength": dp.by_macs(1e-8), "steps": 5}, "dp.by_macs.1e-8 . progress."),
        ({"strength": lambda p: 1e-4 * p}, "is called with a group.*\n.*steps="),
        ({"strength": lambda p: 1e-4 - p, "steps": 5}, "the strength for `0`"),
        ({"budget": dp.Budget(macs=0.5, steps=9), "steps": 5}, "its own steps"),
        ({"strength": {"0": 1e-4}, "steps": 5}, "is none"),
    ],
)
def test_what_cannot_be_meant_is_refused(options, message):
    model = net()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ArgumentError, match=message):
        dp.Pruner(model, X, **options)
    assert model.state_dict().keys() == before.keys()


def test_a_pattern_of_later_that_matches_nothing_is_refused():
    with pytest.raises(UnknownNameError, match="strength: nothing matches `nope`"):
        dp.Pruner(net(), X, strength=lambda p: {"nope" if p else "*": 1e-4}, steps=5)

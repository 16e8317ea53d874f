"""Gates in anybody's optimizer: pushed by the penalty, never decayed."""

import copy

import pytest
import torch
from torch import nn, optim

import diffprune as dp
from diffprune.integrations._training import (
    add_penalty_,
    gate_parameters,
    set_gates_apart_,
    with_steps,
)

KINDS = [optim.SGD, optim.AdamW, optim.RMSprop, optim.Adagrad]


def make(strength=0.1):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))
    return dp.Pruner(model, torch.rand(2, 4), strength=strength, remove_every=10**6)


@pytest.mark.parametrize("kind", KINDS)
def test_gates_train_as_in_a_group_of_their_own(kind):
    one, other = make(), make()
    other.model.load_state_dict(one.model.state_dict())
    expected = kind(
        one.parameter_groups(lr=0.05, gate_lr=0.1, weight_decay=0.5), lr=0.05
    )
    actual = kind(other.model.parameters(), lr=0.05, weight_decay=0.5)
    set_gates_apart_(other, actual, lr_scale=2.0)
    order = [*actual.param_groups[0]["params"]]
    for _ in range(3):
        x = torch.rand(8, 4)
        (one.model(x).square().mean() + one.penalty()).backward()
        other.model(x).square().mean().backward()
        add_penalty_(other, [actual])
        expected.step()
        actual.step()
        expected.zero_grad()
        actual.zero_grad()
        assert len(actual.param_groups) == 1
    assert [id(p) for p in actual.param_groups[0]["params"]] == [id(p) for p in order]
    found = dict(other.model.named_parameters())
    for name, parameter in one.model.named_parameters():
        torch.testing.assert_close(found[name], parameter)


def test_a_step_that_fails_leaves_nothing_behind():
    pruner = make()
    optimizer = optim.SGD(pruner.model.parameters(), 0.1, weight_decay=0.5)
    set_gates_apart_(pruner, optimizer)

    def fail():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        optimizer.step(fail)
    optimizer.step()
    assert len(optimizer.param_groups) == 1
    assert len(optimizer.param_groups[0]["params"]) == len([*pruner.model.parameters()])


def test_the_penalty_is_scaled_as_gradients_are():
    pruner = make()
    optimizer = optim.SGD(pruner.model.parameters(), 0.1)
    add_penalty_(pruner, [optimizer])
    once = [copy.copy(p.grad) for p in gate_parameters(pruner)]
    add_penalty_(pruner, [optimizer], scale=2.0)
    for gradient, parameter in zip(once, gate_parameters(pruner), strict=True):
        torch.testing.assert_close(parameter.grad, 3 * gradient)


def test_a_trainer_says_how_long_it_takes():
    budget = dp.Budget(macs=0.5)
    assert with_steps(budget, 40).steps == 40
    assert with_steps(dp.Budget(macs=0.5, steps=3), 40).steps == 3
    assert [b.steps for b in with_steps([budget, budget], 40)] == [20, 20]
    assert with_steps(budget, float("inf")) == with_steps(budget, -1) == budget
    assert with_steps(None, 40) is None

"""A pruner goes through pickle and trains on as if nothing had happened."""

import copy
import pickle

import pytest
import torch
from torch import nn, optim

import diffprune as dp
from diffprune.errors import ArgumentError, FinishedError

X = torch.linspace(-1, 1, 20).view(4, 5)


class Placed(nn.Module):
    """A gate by hand."""

    def __init__(self):
        super().__init__()
        self.up, self.gate, self.down = nn.Linear(5, 9), dp.Gate(9), nn.Linear(9, 3)

    def forward(self, x):
        return self.down(self.gate(self.up(x).relu()))


def layers():
    return nn.Sequential(nn.Linear(5, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 3))


def train_(pruner, optimizer, steps):
    for _ in range(steps):
        loss = pruner.model(X).square().mean() + pruner.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pruner.step(optimizer)


def sgd(pruner):
    return optim.SGD(pruner.parameter_groups(lr=1e-2, gate_lr=0.1))


def close_(pruner):
    for gate in pruner.gates.values():
        gate.logits.data[:4] -= 5.0


@pytest.mark.parametrize("build", [layers, Placed])
@pytest.mark.parametrize("is_cut", [False, True])
def test_a_pickled_pruner_goes_on_as_the_original_does(build, is_cut):
    torch.manual_seed(0)
    pruner = dp.Pruner(build(), X, strength=1e-4, remove_every=2)
    if is_cut:
        close_(pruner)
    train_(pruner, sgd(pruner), 3)
    assert bool(pruner.history) is is_cut
    random = torch.get_rng_state()
    again = pickle.loads(pickle.dumps(pruner))  # noqa: S301 - our own
    assert torch.equal(torch.get_rng_state(), random)
    assert (again.history, again.plan, again.steps) == (
        pruner.history,
        pruner.plan,
        pruner.steps,
    )
    for each in (pruner, again):
        close_(each)
        train_(each, sgd(each), 5)
    torch.testing.assert_close(again.finalize()(X), pruner.finalize()(X))


def test_budgets_and_what_is_folded_are_kept():
    torch.manual_seed(0)
    budget = dp.Budget(parameters=0.6, steps=6)
    pruner = dp.Pruner(layers(), X, budget=budget)
    optimizer = sgd(pruner)
    for steps in (3, 9):
        train_(pruner, optimizer, steps)
        again = pickle.loads(pickle.dumps(pruner))  # noqa: S301 - our own
        assert str(again.summary()) == str(pruner.summary())
        torch.testing.assert_close(again.model(X), pruner.model(X))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: {"remove_every": lambda _: True}, r"`remove_every`(?s:.*)lambda"),
        (lambda: {"on_removal": lambda _: None}, "`on_removal`"),
    ],
)
def test_what_cannot_be_pickled_is_named(make, match):
    pruner = dp.Pruner(layers(), X, strength=1e-4, **make())
    with pytest.raises(ArgumentError, match=match):
        pickle.dumps(pruner)


def test_models_without_an_importable_class_are_named():
    class Local(Placed):
        pass

    pruner = dp.Pruner(Local(), X, strength=1e-4)
    with pytest.raises(ArgumentError, match=r"because of `model`.*Local"):
        pickle.dumps(pruner)


def test_copies_and_finished_pruners_say_so():
    pruner = dp.Pruner(layers(), X, strength=1e-4)
    pruner.add_copy(copy.deepcopy(pruner.model))
    with pytest.raises(ArgumentError, match="1 copies follow this pruner"):
        pickle.dumps(pruner)
    finished = dp.Pruner(layers(), X, strength=1e-4)
    finished.finalize()
    with pytest.raises(FinishedError):
        pickle.dumps(finished)

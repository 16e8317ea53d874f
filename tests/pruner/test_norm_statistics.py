import copy

import pytest
import torch
from torch import nn

import diffprune as dp
from diffprune._pruner.norm_statistics import NormStatistics

BATCHES = torch.randn(6, 50, 3, generator=torch.Generator().manual_seed(0)) * 2 + 5


def seen(norm, batches):
    """What a norm ends with that forgets first, and counts its steps."""
    statistics = NormStatistics(norm)
    statistics.forget_()
    for batch in batches:
        norm(batch)
        statistics.step_()
    return norm.running_mean, norm.running_var


@pytest.mark.parametrize("momentum", [0.1, 0.01, None])
def test_statistics_are_the_plain_mean_of_what_was_seen_since(momentum):
    norm = nn.BatchNorm1d(3, momentum=momentum).double()
    norm.running_mean.fill_(-100)
    norm.running_var.fill_(1e4)
    mean, var = seen(norm, BATCHES.double())
    torch.testing.assert_close(mean, BATCHES.double().mean((0, 1)))
    torch.testing.assert_close(var, BATCHES.double().var(1).mean(0))


def test_in_the_long_run_the_momentum_is_the_norms_own():
    one, other = nn.BatchNorm1d(3, momentum=0.5), nn.BatchNorm1d(3, momentum=0.5)
    seen(one, BATCHES)
    other.momentum = 1.0
    for batch in BATCHES:  # one, a half, a half, ...
        other(batch)
        other.momentum = 0.5
    torch.testing.assert_close(one.running_mean, other.running_mean)


def test_batches_of_one_step_are_counted():
    norm = nn.BatchNorm1d(3).double()
    statistics = NormStatistics(norm)
    statistics.forget_()
    for batch in BATCHES.double():
        norm(batch)
    statistics.step_()
    weights = 0.9 ** torch.arange(5, -1, -1, dtype=torch.float64)
    means = BATCHES.double().mean(1)
    expected = (weights[:, None] * means).sum(0) / weights.sum()
    torch.testing.assert_close(norm.running_mean, expected)


def test_a_norm_that_is_frozen_or_keeps_none_is_left_alone():
    frozen, without = nn.BatchNorm1d(3).eval(), nn.BatchNorm1d(3, momentum=0.0)
    before = copy.deepcopy(frozen.state_dict())
    for norm in (frozen, without, nn.BatchNorm1d(3, track_running_stats=False)):
        statistics = NormStatistics(norm)
        statistics.forget_()
        norm(BATCHES[0])
        statistics.step_()
    assert all(torch.equal(v, before[n]) for n, v in frozen.state_dict().items())
    assert torch.equal(without.running_mean, torch.zeros(3))


def test_a_norm_without_momentum_keeps_its_statistics_until_it_has_seen_others():
    norm = nn.BatchNorm1d(3, momentum=None)
    norm(BATCHES[0])
    before = norm.running_mean.clone()
    NormStatistics(norm).forget_()
    norm.eval()(BATCHES[1])
    assert torch.equal(norm.running_mean, before)
    norm.train()(BATCHES[1])
    torch.testing.assert_close(norm.running_mean, BATCHES[1].mean(0))


def conv_net():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(3, 16),
        nn.BatchNorm1d(16),
        nn.ReLU(),
        nn.Linear(16, 8),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Linear(8, 2),
    )


def train_(pruner, optimizer, batches):
    for batch in batches:
        loss = pruner.model(batch).square().mean() + pruner.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pruner.step(optimizer)


def make(steps):
    model = conv_net()
    budget = dp.Budget(macs=0.4, steps=steps)
    pruner = dp.Pruner(model, BATCHES[0][:2], budget=budget)
    return pruner, torch.optim.SGD(pruner.parameter_groups(lr=0.0))


@pytest.mark.filterwarnings("ignore:the budget was met only now")
def test_after_a_budget_the_model_is_normalised_by_what_it_computes():
    """At a learning rate of zero, eval mode soon computes what train mode does."""
    pruner, optimizer = make(steps=6)
    train_(pruner, optimizer, BATCHES)
    small = pruner.finalize()
    everything = BATCHES.flatten(0, 1)
    trained = small.train()(everything)
    gap = (small.eval()(everything) - trained).square().mean() / trained.var()
    assert gap < 0.05


@pytest.mark.filterwarnings("ignore:the budget was met only now")
def test_a_run_that_is_resumed_goes_on_forgetting(tmp_path):
    whole, optimizer = make(steps=12)
    batches = torch.cat([BATCHES, BATCHES])
    train_(whole, optimizer, batches)
    first, optimizer = make(steps=12)
    removed = 0
    while not removed or first._norms.state_dict() is None:
        train_(first, optimizer, batches[first.steps : first.steps + 1])
        removed = len(first.history)
    assert first.steps < 12
    dp.save_checkpoint(tmp_path / "run", first, optimizer)
    again, optimizer = make(steps=12)
    dp.load_checkpoint(tmp_path / "run", again, optimizer)
    train_(again, optimizer, batches[again.steps :])
    expected = whole.model.state_dict()
    for name, tensor in again.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name

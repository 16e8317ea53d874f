from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import diffprune as dp
from diffprune.errors import ArgumentError
from paper.fewer_weights import BEGIN, END, FewerWeights

STEPS = 20
IMAGES = torch.rand(6, 3, 5, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(6) % 2


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(45, 2))


def started(weights=50):
    pruner = FewerWeights(make(), IMAGES, weights=weights, steps=STEPS)
    return pruner, torch.optim.Adam(pruner.parameter_groups(lr=1e-2))


def train(pruner, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(pruner.model(IMAGES), LABELS).backward()
        optimizer.step()
        pruner.step(optimizer)


def weights_of(model):
    return torch.cat([model[0].weight.flatten(), model[3].weight.flatten()]).detach()


@pytest.fixture(autouse=True)
def at_every_step(monkeypatch):
    monkeypatch.setattr("paper.fewer_weights.EVERY", 1)


def test_as_many_weights_are_left_as_were_asked_for():
    pruner, optimizer = started()
    assert pruner.dense.parameters == 3 * 9 * 5 + 5 + 90 + 2
    train(pruner, optimizer, STEPS)
    before = pruner.model(IMAGES)
    small = pruner.finalize()
    assert str(small) == str(make())
    assert torch.equal(small(IMAGES), before)
    assert int(weights_of(small).count_nonzero()) == 50
    assert pruner.history[-1].parameters == 50 + 5 + 2
    assert pruner.history[-1].macs == pruner.dense.macs


def test_even_if_there_is_hardly_a_step(monkeypatch):
    monkeypatch.setattr("paper.fewer_weights.EVERY", 1_000)
    pruner, optimizer = started()
    train(pruner, optimizer, STEPS)
    assert int(weights_of(pruner.finalize()).count_nonzero()) == 50


def test_weights_leave_along_a_cubic_and_none_comes_back():
    pruner, optimizer = started()
    seen = []
    for _ in range(STEPS):
        train(pruner, optimizer, 1)
        seen.append(weights_of(pruner.model) != 0)
    left = [int(one.sum()) for one in seen]
    first, last = int(BEGIN * STEPS), int(END * STEPS)
    assert left[first - 1] == 225
    assert left[last - 3] > left[last - 1] == left[-1] == 50
    gone = [before - after for before, after in pairwise(left)]
    assert gone[first - 1 : last - 1] == sorted(gone[first - 1 : last - 1])[::-1]
    assert not any((later & ~sooner).any() for sooner, later in pairwise(seen))


def test_the_least_worth_leave():
    pruner, optimizer = started(weights=224)
    train(pruner, optimizer, int(BEGIN * STEPS))
    layers = pruner.model[0], pruner.model[3]
    originals = [layer.parametrizations.weight.original for layer in layers]
    for one in originals:
        optimizer.state[one]["exp_avg_sq"].fill_(1.0)
        one.data.fill_(1.0)
    # The smallest weight has large gradients, the smallest gradients a large weight.
    originals[0].data[1, 0, 0, 0], originals[0].data[2, 1, 2, 0] = 0.1, 3.0
    squares = optimizer.state[originals[0]]["exp_avg_sq"]
    squares[1, 0, 0, 0], squares[2, 1, 2, 0] = 400.0, 0.2
    optimizer.state[originals[1]]["exp_avg_sq"][1, 7] = 0.5
    pruner.steps = int(END * STEPS) - 1
    pruner.step(optimizer)
    assert (pruner.model[0].weight != 0).all()
    assert (pruner.model[3].weight == 0).nonzero().tolist() == [[1, 7]]


def test_a_run_that_was_stopped_goes_on_as_if_nothing_had_been(tmp_path):
    whole = started()
    train(*whole, STEPS)
    stopped = started()
    train(*stopped, 7)
    dp.save_checkpoint(tmp_path / "checkpoint", *stopped)
    again = started()
    dp.load_checkpoint(tmp_path / "checkpoint", *again)
    train(*again, STEPS - 7)
    assert torch.equal(weights_of(again[0].finalize()), weights_of(whole[0].finalize()))


@pytest.mark.parametrize("weights", [0, -1, 226])
def test_what_cannot_be_left_is_refused(weights):
    with pytest.raises(ArgumentError, match="of 225 weights"):
        started(weights)

"""Latency with a clock of our own: an op takes as long as its shapes say."""

import itertools
import json

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from diffprune._core import timing
from diffprune._costs.latency import latency, measure_in_turns
from diffprune._costs.network import Network
from diffprune._costs.op_timing import operations
from diffprune._graph import find_groups


class Depthwise(nn.Module):
    """conv 8 -> depthwise conv -> relu in place -> fc 3."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, 8, 3)
        self.second = nn.Conv2d(8, 8, 3, groups=8)
        self.last = nn.Linear(8 * 4, 3)

    def forward(self, x):
        return self.last(self.second(self.first(x)).relu_().flatten(1))


@pytest.fixture
def network():
    model, x = Depthwise().eval(), torch.rand(2, 2, 6, 6)
    groups = find_groups(model, x)
    return Network(model, x, groups, tuple(groups))


def set_clock(monkeypatch, model):
    """An op takes as many seconds as it has elements; a model takes so many."""

    def seconds(run, *_):
        args = getattr(run, "args", ())
        tensors = [t for t in pytree.tree_leaves(args) if isinstance(t, torch.Tensor)]
        return float(sum(t.numel() for t in tensors)) or model

    monkeypatch.setattr(timing, "best_seconds", seconds)
    monkeypatch.setattr("diffprune._costs.latency.best_seconds", seconds)


@pytest.fixture
def elements(monkeypatch):
    """An op takes as many seconds as it has elements; a model takes a thousand."""
    set_clock(monkeypatch, 1000.0)


def expected(width):
    """Elements of the arguments of the four ops."""
    first = 2 * 2 * 36 + 18 * width + width
    second = 2 * width * 16 + 9 * width + width
    relu, last = 2 * width * 4, 2 * width * 4 + 3 * 4 * width + 3
    return first + second + relu + last


def test_views_take_no_time(network):
    names = [
        operation.step.op.overloadpacket.__name__ for operation in operations(network)
    ]
    assert names == ["conv2d", "conv2d", "relu_", "linear"]


@pytest.mark.parametrize("width", range(1, 9))
def test_times_that_grow_with_widths_are_interpolated_exactly(
    network, elements, tmp_path, width
):
    del elements
    predicted = latency(network, tmp_path)
    rest = 1000.0 - expected(8)
    found = predicted(torch.tensor([float(width)]))
    assert float(found) == pytest.approx(expected(width) + rest)


def test_the_whole_model_takes_what_was_measured(network, elements, tmp_path):
    del elements
    assert float(latency(network, tmp_path)(network.widths())) == pytest.approx(1000.0)


def test_a_model_that_takes_less_than_its_ops_never_takes_less_than_no_time(
    network, tmp_path, monkeypatch
):
    set_clock(monkeypatch, 400.0)
    predicted = latency(network, tmp_path)
    assert float(predicted(network.widths())) == pytest.approx(400.0)
    found = float(predicted(torch.tensor([1.0])))
    assert found == pytest.approx(400.0 * expected(1) / expected(8))


def test_predictions_are_differentiable(network, elements, tmp_path):
    del elements
    widths = torch.tensor([5.3], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(latency(network, tmp_path), widths)


def test_what_was_timed_is_remembered(network, tmp_path, monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(timing, "best_seconds", lambda *_: float(next(ticks)))
    first = latency(network, tmp_path)
    timed = next(ticks)
    (file,) = tmp_path.iterdir()
    assert len(json.loads(file.read_text())) == timed
    again = latency(network, tmp_path)
    assert next(ticks) == timed + 1
    assert torch.equal(first.seconds, again.seconds)
    assert first.rest == again.rest


def test_other_threads_are_timed_anew(network, tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "best_seconds", lambda *_: 1.0)
    latency(network, tmp_path)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    latency(network, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_real_time_is_measured(network):
    (seconds,) = measure_in_turns([network.model], network.inputs)
    assert 0 < seconds < 1
    assert not network.model.training


@pytest.mark.slow
def test_predictions_are_near_what_pruned_models_take(tmp_path):
    """Wide layers: ops then take far more than a busy machine adds. Odd, as remain."""
    model = nn.Sequential(
        nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU()
    ).append(nn.Conv2d(64, 8, 3))
    x = torch.rand(4, 3, 32, 32)
    groups = find_groups(model, x)
    predicted = latency(Network(model, x, groups, tuple(groups)), tmp_path)
    for width in (15, 31, 47):
        small = nn.Sequential(
            nn.Conv2d(3, width, 3), nn.ReLU(), nn.Conv2d(width, width, 3), nn.ReLU()
        ).append(nn.Conv2d(width, 8, 3))
        found = float(predicted(torch.tensor([float(width)] * 2)))
        (seconds,) = measure_in_turns([small], x)
        assert found == pytest.approx(seconds, rel=0.5)

import pytest
import torch
from torch import nn

from diffprune.lab.report.networks import (
    LayerCost,
    Network,
    dense_network,
    layer_costs,
    network,
    ratio,
)
from diffprune.lab.runs.records import read_runs


def test_a_finished_run_is_what_its_summary_says(make_run):
    (run,) = read_runs([make_run("small")])
    assert network(run, 0.5) == Network(
        name="small",
        error=4.0,
        parameters=10_000,
        macs=500_000,
        seconds=0.5,
        file_size=1_234,
        widths={"conv1": 4, "conv2": 10, "fc1": 100},
    )


def test_an_unfinished_run_is_what_its_last_epoch_says(make_run):
    (run,) = read_runs([make_run("young", epochs=2, finished=False)])
    found = network(run, None)
    assert (found.error, found.parameters, found.macs) == (8.0, 20_000, 1_000_000)
    assert found.file_size is None


def test_a_trained_dense_run_goes_before_a_rebuilt_network(make_run):
    runs = read_runs([make_run("full", gates={}), make_run("small")])
    rebuilt = Network(name="dense", macs=7, seconds=1.5, widths={"conv1": 20})
    found = dense_network(runs, rebuilt)
    assert (found.name, found.error, found.macs) == ("dense", 4.0, 2_000_000)
    assert (found.seconds, found.widths) == (1.5, {"conv1": 20})


def test_without_either_nothing_is_known(make_run):
    assert dense_network(read_runs([make_run("small")]), None) == Network(name="dense")


@pytest.mark.parametrize(
    ("part", "whole", "left"), [(1, 4, 0.25), (None, 4, None), (1, None, None)]
)
def test_ratios_are_of_what_is_known(part, whole, left):
    assert ratio(part, whole) == left


def test_layers_cost_what_they_hold_and_multiply():
    dense = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    small = nn.Sequential(nn.Linear(3, 1), nn.ReLU(), nn.Linear(1, 2))
    assert layer_costs(dense, small, torch.rand(1, 3)) == (
        LayerCost("0", (16, 4), (12, 3)),
        LayerCost("2", (10, 4), (8, 2)),
    )


def test_layers_are_counted_where_torch_takes_short_cuts():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(nn.LSTM(4, 8, batch_first=True), First(), layer).eval()
    costs = {c.name: c.macs[0] for c in layer_costs(model, model, torch.rand(1, 5, 4))}
    assert costs["0"] == 5 * 4 * 8 * (4 + 8)
    assert costs["2.linear1"] == 5 * 8 * 16
    assert costs["2.self_attn"] > 0


class First(nn.Module):
    def forward(self, outputs):
        return outputs[0]

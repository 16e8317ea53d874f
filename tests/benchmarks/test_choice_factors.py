import copy

import pytest
import torch
from torch import nn

from benchmarks import choice_factors
from benchmarks.choice_factors import WAYS, Result, means, rescale_


def result(way, network, seed, error):
    widths, order, weights = way
    return Result(
        network=network,
        seed=seed,
        target=0.2,
        compute=1.0,
        widths=widths,
        order=order,
        weights=weights,
        units=(3, 4),
        steps=10,
        error=error,
        loss=1.0,
    )


def test_differences_are_paired_and_over_runs_that_both_ways_have():
    found = [
        result(way, "perceptron", seed, 10 + number + 2 * number * seed)
        for number, way in enumerate(WAYS)
        for seed in (0, 1)
    ]
    found.append(result(WAYS[0], "perceptron", 2, 90.0))  # no other way has it
    errors, gaps = means(found)
    assert errors[:4] == ("1", "perceptron", "36.67", "12.00")
    assert gaps[:4] == ("1", "difference", "", "+2.00 ± 1.00 (2)")


def test_scaled_filters_compute_the_same_in_front_of_a_norm():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 5, 3, bias=False), nn.BatchNorm2d(5)).double()
    images = torch.randn(8, 2, 6, 6).double()
    model(images)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other[0].weight.mul_(torch.rand(5, 1, 1, 1).double())
    expected = model.eval()(images)
    rescale_(model, other, images)
    torch.testing.assert_close(model(images), expected)
    norms = (m[0].weight.flatten(1).norm(dim=1) for m in (model, other))
    torch.testing.assert_close(*norms)


@pytest.mark.parametrize("name", ["residual, norms last", "residual, bottlenecks"])
def test_residual_networks_read_thumbnails(name):
    model = choice_factors.NETWORKS[name].make()
    assert model(torch.zeros(2, 3, 16, 16)).shape == (2, 10)

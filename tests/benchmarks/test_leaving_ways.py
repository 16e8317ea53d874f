import torch
from torch import nn

from benchmarks import leaving_ways
from benchmarks.leaving_ways import Result, means
from diffprune import find_groups

ERRORS = {"at once": (5, 7), "faded": (4, 8), "refitted": (5, 6)}


def test_differences_are_paired_by_seed():
    found = [
        Result(
            network="perceptron", seed=seed, way=way, steps=1, macs=0.2, error=error,
            loss=1.0,
        )
        for way, errors in ERRORS.items()
        for seed, error in enumerate(errors)
    ]  # fmt: skip
    assert [*means(found)] == [
        ("perceptron", "6.00", "6.00 (0.00 ± 1.00)", "5.50 (-0.50 ± 0.50)")
    ]


def test_units_that_have_faded_leave_without_a_trace():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * 16, 3),
    ).double()
    x = torch.randn(8, 2, 6, 6).double()
    keep = {"0": torch.tensor([True, False, True, True])}
    cut = leaving_ways.Cut(find_groups(model, x), keep, [x])
    whole = model.eval()(x)
    leaving_ways.fade_(model, cut, 0.5)
    half = model(x)
    leaving_ways.fade_(model, cut, 0.0)
    faded = model(x)
    torch.testing.assert_close(half, (whole + faded) / 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(x).square().mean().backward()
    optimizer.step()
    leaving_ways.fade_(model, cut, 0.0)
    faded = model(x)
    task = leaving_ways.NETWORKS["perceptron"]
    small, fresh = leaving_ways.removed(model, optimizer, task, cut, "faded")
    torch.testing.assert_close(small.eval()(x), faded)
    old = optimizer.state[model[4].weight]["momentum_buffer"]
    kept = old.unflatten(1, (4, 16))[:, keep["0"]].flatten(1)
    assert torch.equal(fresh.state[small[4].weight]["momentum_buffer"], kept)

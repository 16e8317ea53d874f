from contextlib import nullcontext

import pytest
import torch
from torch import nn

import diffprune as dp


@pytest.mark.parametrize("around", [nullcontext, lambda: torch.autocast("cpu")])
def test_steps_may_be_of_different_lengths_and_within_autocast(around):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 12), nn.ReLU())
    model.append(nn.Linear(12, 9))
    texts = [torch.randint(9, (32, n)) for n in (7, 3, 5, 2) * 4]
    budget = dp.Budget(macs=0.5, steps=len(texts), pretrained=True)
    pruner = dp.Pruner(model, texts[0], budget=budget)
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-3))
    for text in texts:
        with around():
            loss = nn.functional.cross_entropy(model(text).mT.float(), text)
            (loss + pruner.penalty()).backward()
            optimizer.step()
            pruner.step(optimizer)
    assert pruner.finalize(optimizer)[1].out_features == 6


def test_what_was_known_before_a_removal_decides_right_after_it():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    budget = dp.Budget(macs=0.4, steps=100)
    pruner = dp.Pruner(model, torch.rand(2, 8), budget=budget)
    optimizer = torch.optim.SGD(pruner.parameter_groups(lr=1e-3))
    while not pruner.history:
        x = torch.rand(32, 8)
        optimizer.zero_grad()
        (model(x) - x[:, :2]).square().mean().backward()
        optimizer.step()
        pruner.step(optimizer)
    known = pruner._measuring._orders["0"]
    expected = pruner.kept["0"][known.keep(12)]
    with pytest.warns(UserWarning, match="was met only now"):
        pruner.finalize(optimizer)
    assert torch.equal(pruner.kept["0"], expected)


def test_units_that_leave_by_nothing_are_spoken_of():
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
    budget = dp.Budget(macs=0.5, steps=10, pretrained=True)
    pruner = dp.Pruner(model, torch.rand(2, 8), budget=budget)
    optimizer = torch.optim.SGD(pruner.parameter_groups(lr=1e-3))
    compiled = torch.compile(model, backend="eager")
    compiled(torch.rand(32, 8)).square().mean().backward()
    optimizer.step()
    with pytest.warns(UserWarning, match="nothing is known of what units are worth"):
        pruner.step(optimizer)
    assert pruner.history

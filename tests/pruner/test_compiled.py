"""`torch.compile` of a gated model goes on across removals."""

import pytest
import torch
from torch import nn, optim
from torch._dynamo.utils import counters

import diffprune as dp

X = torch.randn(128, 8, generator=torch.Generator().manual_seed(0))
STEPS = 24


def trained(options, compiled):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 1)
    )
    pruner = dp.Pruner(model, X[:2], **options)
    optimizer = optim.Adam(pruner.parameter_groups(lr=0.02, gate_lr=0.1))
    call, losses = compiled(model), []
    for step in range(STEPS):
        x = X.split(32)[step % 4]
        loss = nn.functional.mse_loss(call(x), x[:, :1].relu()) + pruner.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pruner.step(optimizer)
        losses.append(float(loss.detach()))
    return pruner, losses


@pytest.fixture
def fresh():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()
    counters.clear()


@pytest.mark.slow
@pytest.mark.usefixtures("fresh")
@pytest.mark.filterwarnings("ignore")  # torch's own, about what it compiles
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_model_closes_and_removes_the_same_units(backend):
    options = {"strength": 0.002, "remove_every": 4}
    plain, expected = trained(options, lambda model: model)
    pruner, losses = trained(options, lambda m: torch.compile(m, backend=backend))
    assert len(plain.history) > 2
    removals = [(record.step, record.units) for record in pruner.history]
    assert removals == [(record.step, record.units) for record in plain.history]
    assert losses == pytest.approx(expected, rel=1e-4)
    # It is compiled anew after a removal: at least one graph for every shape it had.
    assert counters["stats"]["unique_graphs"] > len(pruner.history)


@pytest.mark.slow
@pytest.mark.usefixtures("fresh")
@pytest.mark.filterwarnings("ignore")  # as above
def test_a_compiled_model_meets_its_budget():
    budget = dp.Budget(macs=0.4, steps=STEPS)
    pruner, _ = trained(
        {"budget": budget}, lambda m: torch.compile(m, backend="aot_eager")
    )
    assert pruner.shape().macs <= 0.4 * pruner.dense.macs

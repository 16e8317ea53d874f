"""`torch.compile` of a gated model goes on across removals, one graph per shape."""

import pytest
import torch
from torch import nn, optim
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

import diffprune as dp
from diffprune._pruner.compiled_code import forget_compiled_code

X = torch.randn(128, 8, generator=torch.Generator().manual_seed(0))
STEPS = 24


def trained(options, compiled, steps=STEPS):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 1)
    )
    pruner = dp.Pruner(model, X[:2], **options)
    optimizer = optim.Adam(pruner.parameter_groups(lr=0.02, gate_lr=0.1))
    call, losses = compiled(model), []
    for step in range(steps):
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
    forget_compiled_code()
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
    # One graph for every shape it had, and no limit that is ever reached.
    assert counters["stats"]["unique_graphs"] == len(pruner.history) + 1


@pytest.mark.slow
@pytest.mark.usefixtures("fresh")
@pytest.mark.filterwarnings("ignore")  # as above
@pytest.mark.parametrize(
    "options",
    [
        {"strength": 0.002, "remove_every": 2},
        {"budget": dp.Budget(macs=0.3, steps=40)},
    ],
    ids=["strength", "budget"],
)
def test_more_removals_than_torch_has_patience_for_are_all_compiled(options):
    backend = CompileCounterWithBackend("aot_eager")
    graphs = []

    def compiled(model):
        call = torch.compile(model, backend=backend)

        def counted(x):
            outputs = call(x)
            graphs.append(backend.frame_count)
            return outputs

        return counted

    pruner, _ = trained(options, compiled, steps=40)
    seen = [record.step for record in pruner.history if record.step < 40]
    assert len(seen) >= torch._dynamo.config.recompile_limit
    # After every removal, and only then, the next call compiles one graph.
    expected = [1 + sum(step <= number for step in seen) for number in range(40)]
    assert graphs == expected
    assert not counters["unimplemented"]  # where torch counts what it gave up on


@pytest.mark.usefixtures("fresh")
def test_many_gates_are_one_graph():
    layers = [m for _ in range(10) for m in (nn.Linear(8, 8), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(8, 1))
    pruner = dp.Pruner(model, X[:2], strength=1e-3)
    backend = CompileCounterWithBackend("eager")
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    torch.testing.assert_close(compiled(X), model(X))
    assert len(pruner.gates) == 10
    assert backend.frame_count == 1


@pytest.mark.usefixtures("fresh")
@pytest.mark.filterwarnings("ignore")  # as above
def test_a_compiled_model_may_ask_for_its_parameters_by_name():
    class ReadsByName(nn.Linear):
        def forward(self, x):
            return x @ self.get_parameter("weight").T

    model = nn.Sequential(nn.Linear(8, 5), ReadsByName(5, 2, bias=False))
    pruner = dp.Pruner(model, X[:2], strength=1e-3)
    compiled = torch.compile(model, backend="eager")
    torch.testing.assert_close(compiled(X), model(X))
    assert list(pruner.gates) == ["0"]


@pytest.mark.usefixtures("fresh")
def test_code_that_others_compiled_stays_unless_a_gated_model_was_compiled():
    def double(x):
        return x * 2

    backend = CompileCounterWithBackend("eager")
    other = torch.compile(double, backend=backend)
    other(X)
    trained({"strength": 0.02, "remove_every": 8}, lambda model: model, steps=8)
    other(X)
    assert backend.frame_count == 1


@pytest.mark.slow
@pytest.mark.usefixtures("fresh")
@pytest.mark.filterwarnings("ignore")  # as above
def test_a_compiled_model_meets_its_budget():
    budget = dp.Budget(macs=0.4, steps=STEPS)
    pruner, _ = trained(
        {"budget": budget}, lambda m: torch.compile(m, backend="aot_eager")
    )
    assert pruner.shape().macs <= 0.4 * pruner.dense.macs

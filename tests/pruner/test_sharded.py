"""A model that `fully_shard` divides among processes shrinks as a whole one does."""

import pytest
import torch
from torch import nn, optim
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import diffprune as dp
from diffprune.errors import ArgumentError, ProcessError
from several_processes import run

X = torch.randn(128, 8, generator=torch.Generator().manual_seed(0))
Y = X[:, :1].relu() + X[:, 1:2]
STEPS = 24
BUDGET = {"budget": dp.Budget(macs=0.4, steps=STEPS)}
STRENGTH = {"strength": 0.002, "remove_every": 4}


def by_layers(model):
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(model)


def make(shard=by_layers, seed=0, **options):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 1)
    )
    pruner = dp.Pruner(model, X[:2], **options)
    if shard is not None:
        pruner.shard_(shard)
    optimizer = optim.AdamW(pruner.parameter_groups(lr=0.02, gate_lr=0.1))
    return model, pruner, optimizer


def train_(run_, steps, rank, count=2):
    model, pruner, optimizer = run_
    for number in range(pruner.steps, pruner.steps + steps):
        some = slice(number % 4 * 32 + rank, number % 4 * 32 + 32, count)
        loss = nn.functional.mse_loss(model(X[some]), Y[some]) + pruner.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pruner.step(optimizer)


def sharded(rank, options, shard):
    model, pruner, optimizer = found = make(shard, seed=rank, **options)
    train_(found, STEPS, rank)
    weights = [p for p in model.parameters() if isinstance(p, DTensor)]
    moments = [optimizer.state[p]["exp_avg"] for p in weights]
    assert len(weights) == 6
    assert all(isinstance(m, DTensor) for m in moments)
    assert [m.shape for m in moments] == [p.shape for p in weights]
    assert weights[0].to_local().shape[0] == -(-weights[0].shape[0] // 2) - (
        rank * (weights[0].shape[0] % 2)
    )
    history = [record.units for record in pruner.history]
    small = pruner.finalize(optimizer)
    assert type(small) is nn.Sequential
    hooks = "_forward_pre_hooks", "_forward_hooks", "_load_state_dict_post_hooks"
    hooks = *hooks, "_state_dict_pre_hooks", "_load_state_dict_pre_hooks"
    assert not any(getattr(m, name) for m in small.modules() for name in hooks)
    small.load_state_dict(small.state_dict())
    moments = [optimizer.state[p]["exp_avg"].tolist() for p in small.parameters()]
    return history, [p.tolist() for p in small.parameters()], moments


@pytest.mark.parametrize(
    ("options", "shard"),
    [
        (STRENGTH, by_layers),
        pytest.param(BUDGET, fully_shard, marks=pytest.mark.slow),
        pytest.param(
            {"budget": dp.Budget(macs=0.4, steps=STEPS, pretrained=True)},
            by_layers,
            marks=pytest.mark.slow,
        ),
    ],
    ids=["strength", "budget", "pretrained"],
)
def test_all_processes_end_with_the_same_small_model(options, shard):
    first, second = run(sharded, options, shard)
    assert first == second
    assert first[0]
    if options is STRENGTH:  # what is closed depends on the gates alone
        model, pruner, optimizer = alone = make(None, **options)
        train_(alone, STEPS, rank=0, count=1)
        assert [record.units for record in pruner.history] == first[0]
        pruner.finalize(optimizer)
        for found, expected in zip(first[1], model.parameters(), strict=True):
            torch.testing.assert_close(
                torch.tensor(found), expected.detach(), rtol=1e-3, atol=1e-4
            )
        for found, expected in zip(first[2], model.parameters(), strict=True):
            moment = optimizer.state[expected]["exp_avg"]
            torch.testing.assert_close(
                torch.tensor(found), moment, rtol=1e-2, atol=1e-4
            )


def failing(rank):
    def told(_):
        if rank == 1:
            raise ZeroDivisionError("of a user")

    found = make(**STRENGTH, on_removal=told)
    train_(found, 3, rank)
    found[1].gates["0"].logits.data[:3] = -9.0
    expected = (ZeroDivisionError, ProcessError)[rank == 0]
    with pytest.raises(expected, match="of a user"):
        train_(found, 1, rank)
    assert isinstance(found[0][0].weight, DTensor)
    before = found[0][0].weight.full_tensor().clone()
    found[1]._on_removal = None
    train_(found, 4, rank)  # it goes on
    return before.shape, found[1].gates["0"].size < 16


def test_what_fails_in_one_process_is_undone_in_all():
    assert run(failing) == [((16, 8), True)] * 2


def refused(_):
    _, pruner, _ = make(None, **STRENGTH)
    with pytest.raises(ArgumentError, match="did not divide the model"):
        pruner.shard_(len)
    with pytest.raises(ArgumentError, match="Make the pruner first"):
        dp.Pruner(fully_shard(nn.Linear(2, 2)), X, **STRENGTH)
    _, other, _ = make(None, **STRENGTH)
    fully_shard(other.model)
    with pytest.raises(ArgumentError, match="Let the pruner do it"):
        other.model(X)
    assert not any(isinstance(p, DTensor) for p in pruner.model.parameters())


def test_a_function_that_divides_nothing_is_refused():
    run(refused)


def test_without_processes_there_is_nothing_to_divide():
    with pytest.raises(ArgumentError, match="torchrun"):
        make(**STRENGTH)

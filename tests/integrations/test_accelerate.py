"""Accelerate saves and loads models of which units were removed, in any order."""

import copy

import pytest
import torch
from torch import nn, optim

import diffprune as dp
from diffprune.errors import ArgumentError
from several_processes import run

accelerate = pytest.importorskip("accelerate")

from diffprune.integrations.accelerate import register  # noqa: E402 - if there is Accelerate

X = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
STEPS = 24


def make(*, registered=True, seed=0, **options):
    torch.manual_seed(seed)
    accelerator = accelerate.Accelerator(cpu=True, **options)
    model = nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1)
    )
    pruner = dp.Pruner(model, X[:2], budget=dp.Budget(macs=0.4, steps=STEPS))
    optimizer = optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    things = accelerator.prepare(model, optimizer, scheduler)
    register(accelerator, pruner, things[1], model=things[0])
    if registered:
        accelerator.register_for_checkpointing(pruner)
    return accelerator, pruner, *things


def train_(run, steps):
    accelerator, pruner, model, optimizer, scheduler = run
    taken = pruner.steps
    while pruner.steps < taken + steps:
        for x in X.split(16):
            with accelerator.accumulate(model):
                task = nn.functional.mse_loss(model(x).float(), x[:, :1].relu())
                accelerator.backward(task + pruner.penalty())
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                pruner.step(optimizer)


@pytest.mark.parametrize(
    "options", [{}, {"gradient_accumulation_steps": 2}, {"mixed_precision": "bf16"}]
)
def test_a_model_shrinks_to_its_budget(options):
    run = make(**options)
    train_(run, STEPS)
    assert run[1].history[-1].macs <= 0.4 * run[1].dense.macs
    assert run[1].finalize()[0].out_features < 16


@pytest.mark.parametrize("registered", [False, True])
def test_a_run_that_was_interrupted_ends_as_one_that_was_not(tmp_path, registered):
    run = make(registered=registered)
    train_(run, 8)
    run[0].save_state(tmp_path)
    assert run[1].history
    train_(run, STEPS - 8)

    fresh_state = make(registered=registered, seed=1)
    fresh_state[0].load_state(tmp_path)
    assert fresh_state[1].steps == 8
    train_(fresh_state, STEPS - 8)
    assert_same(run, fresh_state)


def test_a_run_that_went_on_goes_back(tmp_path):
    run = make()
    train_(run, 8)
    run[0].save_state(tmp_path)
    train_(run, STEPS - 8)
    expected = copy.deepcopy(run[1].model.state_dict())
    run[0].load_state(tmp_path)
    train_(run, STEPS - 8)
    for name, tensor in run[1].model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def assert_same(one, other):
    found = other[1].finalize().state_dict()
    for name, tensor in one[1].finalize().state_dict().items():
        assert torch.equal(found[name], tensor), name


def test_optimizers_without_gates_are_refused():
    accelerator, pruner, *_ = make()
    other = optim.SGD(nn.Linear(1, 1).parameters(), 0.1)
    with pytest.raises(ArgumentError, match="no optimizer trains the gates"):
        register(accelerator, pruner, other)
    with pytest.raises(ArgumentError, match=r"no optimizer.*\n.*pruner, optimizer\)"):
        register(accelerator, pruner)


def together(rank, folder):
    found = make(seed=rank)
    train_(found, 8)
    found[0].save_state(folder)
    train_(found, STEPS - 8)
    again = make(seed=5)
    again[0].load_state(folder)
    train_(again, STEPS - 8)
    widths = [len(numbers) for numbers in found[1].kept.values()]
    states = [one[1].finalize().state_dict() for one in (found, again)]
    tensors = [{n: t.tolist() for n, t in state.items()} for state in states]
    shares = [{n: t for n, t in s.items() if "running" not in n} for s in tensors]
    return shares, widths, found[1].history[-1].macs / found[1].dense.macs


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_two_processes_end_with_the_same_small_model(tmp_path):
    first, second = run(together, tmp_path)
    assert first == second
    assert first[0][0] == first[0][1]  # and so they do if they are interrupted
    assert first[2] <= 0.4


def unprepared(_):
    accelerator = accelerate.Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    pruner = dp.Pruner(model, X[:2], strength=1e-3)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ArgumentError, match="Pass the prepared model"):
        register(accelerator, pruner, optimizer, model=model)


@pytest.mark.filterwarnings("ignore")
def test_processes_whose_model_is_not_prepared_are_refused():
    run(unprepared)

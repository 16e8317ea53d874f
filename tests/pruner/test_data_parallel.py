"""A model that several processes train shrinks alike in all of them."""

import copy
import os
import pickle
import time

import pytest
import torch
from torch import nn, optim
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_map_only

import diffprune as dp
from diffprune.errors import ArgumentError, DiffpruneError, ProcessError
from several_processes import run

X = torch.randn(128, 8, generator=torch.Generator().manual_seed(0))
Y = X[:, :1].relu() + X[:, 1:2]
STEPS = 24
BUDGET = {"budget": dp.Budget(macs=0.4, steps=STEPS)}
STRENGTH = {"strength": 0.002, "remove_every": 4}


def make(seed=0, inside=DistributedDataParallel, **options):
    """A gated model, its wrapper, its pruner and its optimizer."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 1)
    )
    pruner = dp.Pruner(model, X[:2], **options)
    optimizer = optim.AdamW(pruner.parameter_groups(lr=0.02, gate_lr=0.1))
    return inside(model), pruner, optimizer


def step_(run_, x, y):
    model, pruner, optimizer = run_
    loss = nn.functional.mse_loss(model(x), y) + pruner.penalty()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return pruner.step(optimizer)


def train_(run_, steps, rank, count=2):
    for number in range(run_[1].steps, run_[1].steps + steps):
        some = slice(number % 4 * 32 + rank, number % 4 * 32 + 32, count)
        step_(run_, X[some], Y[some])


def condensed(pruner):
    """All that has to be the same in all processes; tensors as lists, to the bit."""
    state = pruner.state_dict()
    known = ("kept", "looks", "squares", "steps", "budget", "folded", "units")
    values = {name: state[name] for name in known} | pruner.model.state_dict()
    return tree_map_only(torch.Tensor, torch.Tensor.tolist, values)


def whole_run(rank, options, wrapper_options):
    def wrapped(model):
        return DistributedDataParallel(model, **wrapper_options)

    found = make(seed=rank, inside=wrapped, **options)
    train_(found, STEPS, rank)
    history = [(r.step, r.units, r.macs) for r in found[1].history]
    before = condensed(found[1])
    small = found[1].finalize(found[2])
    train = nn.functional.mse_loss(found[0](X[rank::2]), Y[rank::2])
    train.backward()  # the wrapper follows the last cut, too
    gradients = [p.grad.tolist() for p in small.parameters()]
    return before, history, gradients, [p.tolist() for p in small.parameters()]


@pytest.mark.parametrize(
    ("options", "wrapper_options"),
    [
        (BUDGET, {}),
        (STRENGTH, {"find_unused_parameters": True}),
        pytest.param(
            {"budget": dp.Budget(macs=0.4, steps=STEPS, pretrained=True)},
            {"gradient_as_bucket_view": True},
            marks=pytest.mark.slow,
        ),
        pytest.param(BUDGET, {"static_graph": True}, marks=pytest.mark.slow),
        pytest.param(
            {
                "budget": [
                    dp.Budget(latency=0.99, steps=12),
                    dp.Budget(macs=0.4, steps=12),
                ]
            },
            {},
            marks=pytest.mark.slow,
        ),
    ],
    ids=["budget", "strength", "pretrained", "static", "latency"],
)
def test_all_processes_end_with_the_same_small_model(options, wrapper_options):
    first, second = run(whole_run, options, wrapper_options)
    assert first == second
    assert first[1][-1][2] < 0.5 * len(X[:2]) * (8 * 16 + 16 * 12 + 12)


def strength_run(rank):
    found = make(**STRENGTH)
    train_(found, STEPS, rank)
    return condensed(found[1])


def test_two_processes_do_what_one_does_with_both_halves_of_a_batch():
    alone = make(inside=lambda model: model, **STRENGTH)
    train_(alone, STEPS, rank=0, count=1)
    expected = condensed(alone[1])
    found = run(strength_run)[0]
    assert alone[1].history
    assert found["kept"] == expected["kept"]
    for name in alone[1].model.state_dict():
        torch.testing.assert_close(
            torch.tensor(found[name]),
            torch.tensor(expected[name]),
            rtol=1e-3,
            atol=1e-4,
        )


def interrupted(rank, path, options):
    going_on = make(**options)
    train_(going_on, 10, rank)
    assert going_on[1].history
    if rank == 0:
        dp.save_checkpoint(path, *going_on[1:])
    train_(going_on, STEPS - 10, rank)

    _, pruner, optimizer = make(seed=5, inside=nn.Identity, **options)
    torch.distributed.barrier()
    dp.load_checkpoint(path, pruner, optimizer)
    again = DistributedDataParallel(pruner.model), pruner, optimizer
    train_(again, STEPS - 10, rank)
    return condensed(going_on[1]), condensed(pruner)


@pytest.mark.parametrize("options", [BUDGET, STRENGTH], ids=["budget", "strength"])
def test_a_run_goes_on_from_what_the_first_process_saved(tmp_path, options):
    for one, other in run(interrupted, tmp_path / "run.pt", options):
        assert one == other


def stale(rank):
    words = []
    for unused in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        early = DistributedDataParallel(model, find_unused_parameters=unused)
        pruner = dp.Pruner(model, X[:2], **STRENGTH)
        late = DistributedDataParallel(model, find_unused_parameters=unused)
        never_called = DistributedDataParallel(model, find_unused_parameters=unused)
        with pytest.raises(ArgumentError, match="made before the pruner") as caught:
            early(X)
        words.append(str(caught.value))
        train_((late, pruner, optim.Adam(pruner.parameter_groups(lr=0.1))), 12, rank)
        assert pruner.history
        with pytest.raises(ArgumentError, match="would drift apart"):
            never_called(X)
    return words


def test_a_stale_wrapper_is_refused_also_if_it_looks_for_unused_parameters():
    assert len(run(stale)[0]) == 2


def different(rank):
    found = make(**STRENGTH)
    train_(found, 7, rank)
    assert found[1].history
    if rank == 1:
        found[1].model[2].bias.data[0] += 1e-6
    found[1].gates["0"].logits.data[:3] = -9.0
    before = condensed(found[1])
    with pytest.raises(ProcessError, match="process 1 differs from process 0 in `2"):
        train_(found, 1, rank)
    after = condensed(found[1])
    return {name: after[name] for name in ("kept", "steps")} == {
        name: before[name] for name in ("kept", "steps")
    }


def test_a_process_that_differs_is_found_at_a_removal_by_all():
    assert run(different) == [True, True]


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
    return found[1].steps, found[1].gates["0"].size, found[1].model[0].out_features


def test_what_fails_in_one_process_is_undone_in_all():
    assert run(failing) == [(3, 16, 16)] * 2


def left_alone(rank, how):
    found = make(**STRENGTH)
    train_(found, 5, rank)
    if rank == 1 and how == "dies":
        os._exit(1)
    if rank == 1:
        time.sleep(6)
        return None
    started = time.monotonic()
    with pytest.raises(ProcessError, match="is gone, or did not answer for 3 s"):
        found[1].remove_closed_(found[2])
    return time.monotonic() - started, condensed(found[1])["steps"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["dies", "waits"])
def test_a_process_that_is_gone_is_an_error_and_no_endless_wait(how):
    seconds, steps = run(left_alone, how, patience=3, may_die=[1])[0]
    assert seconds < 6
    assert steps == 5


def with_hooks(rank):
    def compressed(model):
        wrapper = DistributedDataParallel(model)
        wrapper.register_comm_hook(None, default_hooks.allreduce_hook)
        return wrapper

    found = make(inside=compressed, **STRENGTH)
    train_(found, STEPS, rank)
    model, _, _ = make(**STRENGTH)
    state = powerSGD_hook.PowerSGDState(None)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    with pytest.raises(ArgumentError, match="a communication hook with a state"):
        model(X)
    return condensed(found[1]), found[0].reducer is not None


@pytest.mark.slow
def test_communication_hooks_stay_where_they_can():
    first, second = run(with_hooks)
    assert first == second


def test_a_model_in_a_file_or_a_copy_belongs_to_no_processes():
    _, pruner, _ = make(inside=nn.Identity, **STRENGTH)
    loaded = pickle.loads(pickle.dumps(pruner.model))  # noqa: S301 - our own
    copied = copy.deepcopy(pruner)
    for model in (pruner.model, loaded, copied.model):
        model(X).sum().backward()
    assert not copied.finalize()._forward_pre_hooks
    assert issubclass(ProcessError, DiffpruneError)


def loaded_late(rank, path):
    first = make(**STRENGTH)
    train_(first, 10, rank)
    if rank == 0:
        dp.save_checkpoint(path, *first[1:])
    torch.distributed.barrier()
    wrapped, pruner, optimizer = make(seed=3, **STRENGTH)
    pruner.add_wrapper(wrapped)
    dp.load_checkpoint(path, pruner, optimizer)
    for one in (first, (wrapped, pruner, optimizer)):
        train_(one, 6, rank)
    return condensed(first[1]), condensed(pruner)


def test_a_wrapper_that_is_added_follows_what_is_loaded(tmp_path):
    for one, other in run(loaded_late, tmp_path / "run.pt"):
        assert one == other

import threading

import pytest
import torch
from torch.utils import checkpoint as checkpointing
from torch.utils.checkpoint import checkpoint

from diffprune._core.recomputation import without_recomputing


def runs_of(reentrant):
    """How often a part runs, and its gradient."""
    calls, x = [], torch.ones(2, requires_grad=True)

    def part(x):
        calls.append(1)
        return x.exp()

    checkpoint(part, x, use_reentrant=reentrant).sum().backward()
    return len(calls), x.grad


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_part_runs_once_within_and_twice_without(reentrant):
    with without_recomputing():
        once, gradient = runs_of(reentrant)
        with without_recomputing():
            assert runs_of(reentrant)[0] == 1
        assert runs_of(reentrant)[0] == 1
    twice, same = runs_of(reentrant)
    assert (once, twice) == (1, 2)
    assert torch.equal(gradient, same)


@pytest.mark.parametrize("reentrant", [True, False])
def test_an_error_inside_is_the_users_own(reentrant):
    def part(_):
        raise KeyError("mine")

    x = torch.ones(2, requires_grad=True)
    with pytest.raises(KeyError, match="mine"), without_recomputing():
        checkpoint(part, x, use_reentrant=reentrant)
    assert runs_of(reentrant)[0] == 2


def test_blocks_of_several_threads_may_end_in_any_order():
    before = checkpointing.CheckpointFunction
    first_is_open, second_is_open = threading.Event(), threading.Event()

    def first():
        with without_recomputing():
            first_is_open.set()
            second_is_open.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    first_is_open.wait(10)
    with without_recomputing():
        second_is_open.set()
        thread.join(10)
        assert runs_of(reentrant=True)[0] == 1
    assert checkpointing.CheckpointFunction is before

import itertools

import pytest
import torch

from diffprune._core import interleaved as turns
from diffprune._core.interleaved import one_thread, time_in_turns


@pytest.fixture
def clock(monkeypatch):
    """A clock that only calls move: each by its number of seconds."""
    now = [0.0]
    monkeypatch.setattr(turns.time, "process_time", lambda: now[0])

    def taking(seconds):
        durations = iter(seconds)
        return lambda: now.__setitem__(0, now[0] + next(durations))

    return taking


def test_ratios_are_to_the_first_call_of_the_same_round(clock):
    """A machine that gets slower and slower disturbs seconds, not ratios."""
    slower = [*[1.0] * 3, *(1.0 * n for n in range(1, 6))]
    found = time_in_turns(
        {"one": clock(slower), "half": clock([s / 2 for s in slower])}, rounds=5
    )
    assert found["one"].seconds == 3.0
    assert found["half"].seconds == 1.5
    assert found["half"].ratio == 0.5
    assert found["half"].quartiles == (0.5, 0.5)


def test_short_calls_are_repeated(clock):
    calls = []
    quick = clock(itertools.repeat(1e-4))
    time_in_turns({"quick": lambda: (calls.append(1), quick())}, rounds=2)
    assert len(calls) == 3 + 2 * 20


def test_every_call_starts_a_round_in_its_turn(clock):
    order = []
    slow = {name: clock(itertools.repeat(1.0)) for name in "abc"}
    calls = {name: lambda n=name: (order.append(n), slow[n]()) for name in slow}
    time_in_turns(calls, rounds=3)
    assert "".join(order[9:]) == "abcbcacab"


def test_the_number_of_threads_is_left_as_it_was():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)

"""Time several calls in turn, so that their ratios hold on a busy machine."""

import statistics
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import torch

Call = Callable[[], object]
_SHORTEST: Final = 2e-3
"""Seconds; what is faster is repeated, or the clock would be measured with it."""
_WARM_UP: Final = 3


@dataclass(frozen=True)
class Time:
    """How long a call takes.

    Attributes:
        seconds: Median over all rounds.
        ratio: Median over all rounds of the ratio to the first call in that round.
        quartiles: First and third quartile of that ratio.
    """

    seconds: float
    ratio: float
    quartiles: tuple[float, float]


def time_in_turns(calls: Mapping[str, Call], *, rounds: int) -> dict[str, Time]:
    """Time all calls on one thread, each once per round, starting with another one.

    What a busy machine does to one of them it does to all, so ratios can be trusted
    where seconds cannot.
    """
    names = list(calls)
    with one_thread():
        repeats = {name: _repeats(call) for name, call in calls.items()}
        found: list[dict[str, float]] = []
        for number in range(rounds):
            start = number % len(names)
            order = names[start:] + names[:start]
            found.append({n: _seconds(calls[n], repeats[n]) for n in order})
    return {name: _time(name, names[0], found) for name in names}


@contextmanager
def one_thread() -> Generator[None, None, None]:
    """Run torch on a single thread, then on as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _time(name: str, first: str, rounds: list[dict[str, float]]) -> Time:
    ratios = [times[name] / times[first] for times in rounds]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    seconds = statistics.median(times[name] for times in rounds)
    return Time(seconds, middle, (low, high))


def _repeats(call: Call) -> int:
    once = min(_seconds(call, 1) for _ in range(_WARM_UP))
    return max(1, round(_SHORTEST / max(once, 1e-6)))


def _seconds(call: Call, repeats: int) -> float:
    """Time on the processor: on one thread that is the time of an idle machine."""
    start = time.process_time()
    for _ in range(repeats):
        call()
    return (time.process_time() - start) / repeats

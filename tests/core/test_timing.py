import itertools
import logging

import pytest
import torch

from diffprune._core import timing

CPU = torch.device("cpu")


@pytest.fixture
def takes(monkeypatch):
    """Runs take these times, one after the other; says how many have run."""

    def script(*times):
        left = itertools.chain(times, itertools.repeat(times[-1]))
        count = itertools.count()
        monkeypatch.setattr(timing, "_run", lambda *_: next(count) * 0 + next(left))
        return count

    return script


def test_the_fastest_counts_and_the_first_does_not(takes):
    takes(0.001, 0.009, 0.007, 0.008)
    assert timing.best_seconds(lambda: None, CPU) == 0.007


@pytest.mark.parametrize(
    ("each", "runs"), [(0.05, 1 + 5), (5.0, 1 + 2), (1e-5, 1 + 100)]
)
def test_slow_things_are_repeated_less(takes, each, runs):
    count = takes(each)
    timing.best_seconds(lambda: None, CPU)
    assert next(count) == runs


def test_more_patience_is_more_runs(takes):
    count = takes(0.05)
    timing.best_seconds(lambda: None, CPU, timing.THOROUGHLY)
    assert next(count) > 10


def test_what_cannot_run_is_remembered_too(tmp_path):
    asked = []
    for _ in range(2):
        timings = timing.Timings(CPU, tmp_path)
        assert timings.seconds("no", asked.append) is None
        timings.save()
    assert asked == [CPU]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": "b"}', "[" * 100_000, "\0"])
def test_a_damaged_memory_is_written_again(tmp_path, text):
    timings = timing.Timings(CPU, tmp_path)
    timings._path.write_text(text)
    timings = timing.Timings(CPU, tmp_path)
    timings.seconds("x", lambda _: lambda: None)
    timings.save()
    again = timing.Timings(CPU, tmp_path)
    assert again.seconds("x", lambda _: pytest.fail("it was forgotten")) is not None


def test_a_memory_that_cannot_be_written_is_done_without(tmp_path, heard, monkeypatch):
    (tmp_path / "taken").touch()
    timings = timing.Timings(CPU, tmp_path / "taken")
    timings.seconds("x", lambda _: lambda: None)
    monkeypatch.setattr(logging.getLogger(timing.__name__), "level", logging.INFO)
    timings.save()
    (said,) = heard
    assert "not kept for the next time" in said.getMessage()

import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from diffprune.lab.sweeps import heartbeat
from diffprune.lab.sweeps.heartbeat import SILENCE, beating, is_alive, sign_

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECONDS = NOW.timestamp()


@pytest.fixture
def stopped_clock(monkeypatch):
    """It is `NOW`, however long other tests took before this one."""
    monkeypatch.setattr(heartbeat, "time", SimpleNamespace(time=lambda: SECONDS))


@pytest.mark.usefixtures("stopped_clock")
def test_who_signs_is_alive():
    notes = {}
    sign_(notes.__setitem__)
    assert notes["process"] == os.getpid()
    assert is_alive(notes, NOW)


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize("host", [platform.node(), "elsewhere"])
def test_silence_is_death_wherever(host):
    notes = {"host": host, "process": os.getpid(), "seen": SECONDS - SILENCE - 1}
    assert not is_alive(notes, NOW)
    assert is_alive(notes | {"seen": SECONDS - SILENCE + 60}, NOW)


@pytest.mark.usefixtures("stopped_clock")
def test_a_process_of_this_machine_that_ended_is_dead_at_once():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    notes = {"host": platform.node(), "process": ended.pid, "seen": SECONDS}
    assert not is_alive(notes, NOW)
    assert is_alive(notes | {"host": "elsewhere"}, NOW)


@pytest.mark.usefixtures("stopped_clock")
def test_who_never_signed_counts_from_the_start():
    assert is_alive({}, NOW)
    assert not is_alive({}, NOW - timedelta(seconds=SILENCE + 1))


def test_a_heart_beats_again_after_a_failure(monkeypatch):
    monkeypatch.setattr(heartbeat, "BEAT", 0.01)
    seen = []

    def note(_, value):
        seen.append(value)
        if len(seen) == 1:
            raise OSError

    with beating(note, OSError):
        until = time.time() + 10
        while len(seen) < 3 and time.time() < until:
            time.sleep(0.01)
    beats = len(seen)
    assert beats >= 3
    time.sleep(0.05)
    assert len(seen) == beats

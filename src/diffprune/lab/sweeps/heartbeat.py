"""Signs of life: who works on a trial, and whether they still do.

A worker writes the time next to its trial every half a minute. Any storage can hold
that, so it works for files and for databases, and across machines whose clocks agree
to a minute or two.
"""

import os
import platform
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Final

BEAT: Final = 30.0
"""Seconds between two signs of life."""
SILENCE: Final = 300.0
"""Seconds after which a worker counts as dead."""

Note = Callable[[str, Any], object]
"""Writes something next to a trial."""


def sign_(note: Note) -> None:
    """Write who works on a trial, and that they have begun."""
    note("process", os.getpid())
    note("seen", time.time())
    note("host", platform.node())  # last: a host without a process looks dead


@contextmanager
def beating(note: Note, ignored: type[Exception]) -> Generator[None, None, None]:
    """Write the time again and again, while something goes on.

    Args:
        note: Writes it.
        ignored: What may go wrong once; the next beat tries again.
    """
    stopped = threading.Event()

    def beat() -> None:
        while not stopped.wait(BEAT):
            with suppress(ignored):
                note("seen", time.time())

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def is_alive(notes: Mapping[str, Any], started: datetime | None) -> bool:
    """Whether somebody still works on a trial, as far as this machine can tell.

    Args:
        notes: What its worker wrote.
        started: When the trial began.
    """
    begun = None if started is None else started.timestamp()
    seen = notes.get("seen", begun)
    if seen is not None and time.time() - seen > SILENCE:
        return False
    if notes.get("host") != platform.node():
        return True
    try:
        os.kill(notes["process"], 0)
    except (ProcessLookupError, KeyError):
        return False
    except PermissionError:
        return True
    return True

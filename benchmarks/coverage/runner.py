"""Runs one library on one model in a process of its own; writes nothing.

A crash, a hang or a model too large ends that process and becomes a record.
"""

import copy
import multiprocessing as mp
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch
from torch import nn

from benchmarks.coverage.case import Case, Inputs
from benchmarks.coverage.record import Record
from benchmarks.coverage.scramble import scramble_
from benchmarks.coverage.verdict import Cut, RefusedError, Status, judge_

RATIO = 0.3
DIED = "the process died"


@dataclass(frozen=True)
class Library:
    """A way to prune: a name, what version of it, and the cut itself."""

    name: str
    version: str
    cut: Callable[[nn.Module, Inputs, float], Cut]


def isolated(case: Case, library: Library, timeout: int, memory: int = 12) -> Record:
    """Attempt a case in a child process, limited in CPU seconds and in GiB."""
    context = mp.get_context("fork")  # inherits the imported zoos
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(
        target=_child, args=(case, library, timeout, memory, sender)
    )
    child.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        child.join()
        late = child.exitcode == -signal.SIGXCPU
        status, reason = (Status.TIMEOUT, "") if late else (Status.CRASHED, DIED)
        return _record(case, library, status, timeout if late else 0.0, reason)
    finally:
        child.kill()
        child.join()


def attempt(case: Case, library: Library) -> Record:
    """Build, cut and judge a case in this process."""
    start = time.process_time()
    try:
        torch.manual_seed(0)
        original, inputs = scramble_(case.build()), case.inputs()
        model = copy.deepcopy(original)
        start = time.process_time()
        cut = library.cut(model, inputs, RATIO)
        seconds = time.process_time() - start
        verdict = judge_(original, cut.model, inputs)
    except Exception as error:  # noqa: BLE001 (whatever happens is the result)
        seconds = time.process_time() - start
        return _record(case, library, _status(error), seconds, _first_line(error))
    return Record(
        zoo=case.zoo,
        name=case.name,
        library=library.name,
        version=library.version,
        status=verdict.status,
        seconds=round(seconds, 2),
        groups=cut.groups,
        verdict=verdict,
    )


def _child(
    case: Case, library: Library, timeout: int, memory: int, sender: Connection
) -> None:
    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):  # torch.export and some models print at length
        os.dup2(silent, stream)
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (memory << 30, memory << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (timeout, timeout + 1))
    sender.send(attempt(case, library))


def _status(error: Exception) -> Status:
    if isinstance(error, RefusedError):
        return Status.REFUSED
    out_of_memory = isinstance(error, MemoryError) or "t allocate memory" in str(error)
    return Status.MEMORY if out_of_memory else Status.CRASHED


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    if isinstance(error, RefusedError):
        return lines[0]
    return f"{type(error).__name__}: {lines[0]}"[:200]


def _record(
    case: Case, library: Library, status: Status, seconds: float, reason: str = ""
) -> Record:
    return Record(
        zoo=case.zoo,
        name=case.name,
        library=library.name,
        version=library.version,
        status=status,
        seconds=round(seconds, 2),
        reason=reason,
    )

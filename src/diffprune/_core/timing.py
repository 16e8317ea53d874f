"""How long something takes, and a memory for the answers.

A busy machine only ever makes things slower, so the fastest of several runs counts.
"""

import hashlib
import json
import logging
import math
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias, final

import torch
from platformdirs import user_cache_path

from diffprune._core.files import write_text
from diffprune.errors import StorageError

Prepare: TypeAlias = Callable[[torch.device], Callable[[], object] | None]

_LOG: Final = logging.getLogger(__name__)
_ROUNDS: Final = 5
BRIEFLY: Final = 0.02  # seconds
THOROUGHLY: Final = 0.5


def best_seconds(
    run: Callable[[], object], device: torch.device, patience: float = BRIEFLY
) -> float:
    """The shortest of a few runs, after one that warms up.

    Args:
        run: What to time.
        device: Where it runs.
        patience: Seconds to repeat it for; what takes longer is repeated once or twice.
    """
    _run(run, device)
    found = list[float]()
    while (spent := sum(found)) < patience or len(found) < _ROUNDS:
        if len(found) > 1 and spent > 10 * patience:
            break
        found.append(_run(run, device))
        if len(found) >= 20 * _ROUNDS:
            break
    return min(found)


def _run(run: Callable[[], object], device: torch.device) -> float:
    # Time on the processor: on one thread that is the time of an idle machine.
    alone = device.type == "cpu" and torch.get_num_threads() == 1
    clock = time.process_time if alone else time.perf_counter
    _synchronize(device)
    start = clock()
    run()
    _synchronize(device)
    return clock() - start


def _synchronize(device: torch.device) -> None:
    """Wait until a device that works on its own has finished."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


@final
class Timings:
    """Answers that are kept on disk, per machine, number of threads and torch.

    Args:
        device: What the timings are of.
        folder: Where they are kept; by default in the user's cache.
    """

    def __init__(self, device: torch.device, folder: Path | None = None) -> None:
        self._device = device
        folder = folder or user_cache_path("diffprune") / "latency"
        self._path = folder / f"{_digest(_machine(device))}.json"
        self._known: dict[str, float | None] = _read(self._path)
        self.is_new = False

    def seconds(
        self, key: str, prepare: Prepare, patience: float = BRIEFLY
    ) -> float | None:
        """How long something takes; it is prepared and run only if that is unknown."""
        key = _digest(key)
        if key not in self._known:
            run = prepare(self._device)
            self._known[key] = run and best_seconds(run, self._device, patience)
            self.is_new = True
        return self._known[key]

    def save(self) -> None:
        """Write what is new; other processes may have written meanwhile.

        A folder that cannot be written is no reason to stop: it is only a memory.
        """
        if not self.is_new:
            return
        try:
            write_text(self._path, json.dumps({**_read(self._path), **self._known}))
        except StorageError as error:
            _LOG.info("timings are not kept for the next time: %s", error)
        self.is_new = False


def _read(path: Path) -> dict[str, float | None]:
    """What is known; nothing if the file is damaged, which is then written again."""
    try:
        known = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    is_whole = isinstance(known, dict) and all(
        value is None or (type(value) is float and 0 <= value < math.inf)
        for value in known.values()
    )
    return known if is_whole else {}


def _machine(device: torch.device) -> str:
    name = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"{platform.machine()} {platform.processor()} {os.cpu_count()}"
    )
    return f"{device.type} {name} {torch.get_num_threads()} {torch.__version__}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]

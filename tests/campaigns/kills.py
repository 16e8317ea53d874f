"""Kill a real `diffprune train` at random moments; what it comes to must not change.

The command runs in a child of this process, so that it need not import torch again, and
dies by SIGKILL: nothing of it can clean up.
"""

import os
import random
import signal
import time
from pathlib import Path

import torch

import diffprune as dp
from tests.campaigns.doors import TASK

EPOCHS = 6
COMMAND = (
    *("train", "mine.py:task", "--epochs", str(EPOCHS), "--batch-size", "2"),
    *("--strength", "0.03", "--gate-lr", "0.03"),
)


def _train(folder: Path, out: str) -> int:
    """Run the command in a child; its process id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.chdir(folder)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        from diffprune.lab.cli import app

        app([*COMMAND, "--out", out], standalone_mode=False)
        code = 0
    finally:
        os._exit(code)


def _wait(child: int, seconds: float | None = None) -> bool | None:
    """Whether it ended well; None if it was killed after so many seconds."""
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG if end else 0)
        if done:
            return None if os.WIFSIGNALED(status) else os.WEXITSTATUS(status) == 0
        if end and time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            end = None
        time.sleep(0.002)


def _result(folder: Path, out: str) -> dict[str, torch.Tensor]:
    make = {}
    exec(compile(TASK, "mine.py", "exec"), make)  # noqa: S102 - our own words
    return dp.load_pruned(make["model"](), folder / out).state_dict()


def killed_runs(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Kill so many times, over as many runs as it takes; count what was the same.

    Returns:
        How many kills there were, how many runs, and how many runs came to other
        weights than the one that nobody disturbed.
    """
    (folder / "mine.py").write_text(TASK)
    start = time.monotonic()
    if not _wait(_train(folder, "whole")):
        raise RuntimeError("the run that nobody disturbed failed")
    usual, expected = time.monotonic() - start, _result(folder, "whole")
    draw = random.Random(seed)  # noqa: S311 - no secret
    count = {"kills": 0, "runs": 0, "other weights": 0, "failed": 0}
    while count["kills"] < kills:
        out = f"run-{count['runs']}"
        count["runs"] += 1
        for _ in range(5):
            ended = _wait(_train(folder, out), draw.uniform(0.0, usual))
            if ended is not None:
                break
            count["kills"] += 1
        if ended is None:
            ended = _wait(_train(folder, out))
        count["failed"] += not ended
        found = _result(folder, out) if ended else {}
        same = found.keys() == expected.keys() and all(
            torch.equal(found[name], tensor) for name, tensor in expected.items()
        )
        count["other weights"] += not same
    return count

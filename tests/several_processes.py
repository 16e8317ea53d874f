"""Run a function in several real processes that can talk to each other, by gloo."""

import datetime as dt
import multiprocessing
import os
import pickle
import tempfile
import traceback
import warnings
from pathlib import Path

from torch import distributed


def run(scene, *args, count=2, patience=60, may_die=()):
    """Return what `scene(rank, *args)` returns in each process, by rank.

    A process of `may_die` returns None if it ends without a word.
    """
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
        context = multiprocessing.get_context("fork")
        options = scene, args, count, patience, folder
        started = [
            context.Process(target=_child, args=(rank, *options))
            for rank in range(count)
        ]
        for process in started:
            process.start()
        for process in started:
            process.join(4 * patience)
        stuck = [process for process in started if process.is_alive()]
        for process in stuck:
            process.kill()
            process.join()
        assert not stuck, "processes wait for each other"
        files = [Path(folder, str(rank)) for rank in range(count)]
        found = [pickle.loads(f.read_bytes()) if f.exists() else None for f in files]  # noqa: S301 - written below
    for rank, outcome in enumerate(found):
        died = outcome is None and rank not in may_die
        assert not died, f"process {rank} has died"
        assert outcome is None or outcome[0], f"process {rank}: {outcome[1]}"
    return [outcome and outcome[1] for outcome in found]


def _child(rank, scene, args, count, patience, folder):
    numbers = {"RANK": rank, "LOCAL_RANK": rank}
    numbers |= {"WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    os.environ.update({name: str(number) for name, number in numbers.items()})
    # As torchrun says it; trainers do not ask who has made the group.
    os.environ.update(TORCHELASTIC_RUN_ID="test", MASTER_ADDR="localhost")
    os.environ.update(MASTER_PORT="0")
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=count,
        timeout=dt.timedelta(seconds=patience),
    )
    try:
        outcome = True, scene(rank, *args)
    except BaseException:  # noqa: BLE001 - told to the test, which raises it
        outcome = False, traceback.format_exc()
    part = Path(folder, f"{rank}.part")
    part.write_bytes(pickle.dumps(outcome))
    part.rename(Path(folder, str(rank)))
    if distributed.is_initialized():
        distributed.destroy_process_group()

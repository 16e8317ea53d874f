"""The demo from seed to files: a dense and a gated LeNet-5; draws nothing."""

import shutil
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from diffprune.demo.files import paths, write_files
from diffprune.demo.summary import Summary
from diffprune.experiment.builtin import digits_sigmoid, lenet5_digits
from diffprune.experiment.recipe import Recipe
from diffprune.experiment.records import read_run
from diffprune.experiment.train import OnEpoch, train


def recipes(*, seed: int, epochs: int) -> dict[str, Recipe]:
    """What the two networks are trained with: the same, but for the gates."""
    pruned = replace(digits_sigmoid(seed), name="pruned", epochs=epochs)
    return {"dense": replace(pruned, name="dense", strength=None), "pruned": pruned}


def run_demo(
    out: Path, *, seed: int, epochs: int, on_epoch: Mapping[str, OnEpoch]
) -> Summary:
    """Train both networks and write what came out into `out`, over an earlier demo.

    Equal seeds give equal networks, whatever the number of threads; the global random
    state is left as it was.

    Args:
        out: Directory; each network has a run folder in it.
        seed: Of both networks.
        epochs: Of both networks.
        on_epoch: For "dense" and "pruned", what to call after every epoch.

    Raises:
        ArgumentError: If there is nothing to train or nowhere to write.
        MissingPackageError: If scikit-learn is not installed.
    """
    start = time.perf_counter()
    chosen = recipes(seed=seed, epochs=epochs)
    with _one_thread():
        for name, recipe in chosen.items():
            shutil.rmtree(out / name, ignore_errors=True)
            train(lenet5_digits, recipe, out=out / name, on_epoch=on_epoch[name])
    summary = Summary(
        dense=read_run(out / "dense"),
        pruned=read_run(out / "pruned"),
        seconds=time.perf_counter() - start,
        files=paths(out),
    )
    write_files(out, summary)
    return summary


@contextmanager
def _one_thread() -> Generator[None, None, None]:
    """Sums depend on how many threads share them; on one they are always the same."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)

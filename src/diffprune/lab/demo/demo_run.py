"""The demo from seed to files: a dense and a gated LeNet-5; draws nothing."""

import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from diffprune.lab.demo.demo_deliver import deliver
from diffprune.lab.demo.demo_files import paths, write_files
from diffprune.lab.demo.demo_summary import Summary
from diffprune.lab.interleaved import one_thread
from diffprune.lab.runs.records import read_run
from diffprune.lab.training.loop import OnEpoch, train
from diffprune.lab.training.recipe import Recipe
from paper.lenet5_tasks import digits_sigmoid, lenet5_digits


def recipes(*, seed: int, epochs: int) -> dict[str, Recipe]:
    """What the two networks are trained with: the same, but for the gates."""
    pruned = replace(digits_sigmoid(seed), name="pruned", epochs=epochs)
    return {"dense": replace(pruned, name="dense", strength=None), "pruned": pruned}


def train_both(
    out: Path, *, seed: int, epochs: int, on_epoch: Mapping[str, OnEpoch]
) -> None:
    """Train both networks into run folders in `out`, over those of an earlier demo.

    Equal seeds give equal networks, whatever the number of threads: sums depend on how
    many threads share them, so there is one. The global random state is left as it was.

    Args:
        out: Directory.
        seed: Of both networks.
        epochs: Of both networks.
        on_epoch: For "dense" and "pruned", what to call after every epoch.

    Raises:
        ArgumentError: If there is nothing to train or nowhere to write.
        MissingPackageError: If scikit-learn is not installed.
    """
    with one_thread():
        for name, recipe in recipes(seed=seed, epochs=epochs).items():
            shutil.rmtree(out / name, ignore_errors=True)
            train(lenet5_digits, recipe, out=out / name, on_epoch=on_epoch[name])


def sum_up(out: Path, *, start: float) -> Summary:
    """Save, export and report on what `train_both` has left in `out`.

    Args:
        out: Directory.
        start: When it all began, by `time.perf_counter`.
    """
    dense, pruned = out / "dense", out / "pruned"
    delivery = deliver(out, dense=dense, pruned=pruned)
    summary = Summary(
        dense=read_run(dense),
        pruned=read_run(pruned),
        seconds=time.perf_counter() - start,
        files=(*delivery.files, *paths(out)),
        missing=delivery.missing,
    )
    write_files(out, summary)
    return summary

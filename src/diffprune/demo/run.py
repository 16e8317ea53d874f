"""The demo from seed to files: a dense and a gated LeNet-5; draws nothing."""

import datetime as dt
import platform
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import torch

from diffprune.demo.files import make_directory, paths, write_files
from diffprune.demo.summary import Outcome, Summary
from diffprune.demo.training import Epoch, Recipe, error_rate, train_
from diffprune.errors import ArgumentError
from diffprune.gates import Gate
from diffprune.recipes.digits import Digits, load_digits
from diffprune.recipes.models import LeNet5

OnEpoch = Callable[[str, Epoch], object]
"""Called with "dense" or "pruned" after each epoch of that network."""


def run_demo(out: Path, *, seed: int, recipe: Recipe, on_epoch: OnEpoch) -> Summary:
    """Train both networks, test each once and write what came out into `out`.

    Equal seeds give equal numbers, whatever the number of threads; the global random
    state is left as it was.

    Raises:
        ArgumentError: If there is nothing to train or nowhere to write.
        MissingPackageError: If scikit-learn is not installed.
    """
    start = time.perf_counter()
    _check(recipe)
    make_directory(out)
    digits = load_digits()
    with _one_thread(), torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        dense = _train_(
            LeNet5(), digits, replace(recipe, strength=0.0), partial(on_epoch, "dense")
        )
        torch.manual_seed(seed)
        model = LeNet5(Gate)
        pruned = _train_(model, digits, recipe, partial(on_epoch, "pruned"))
    summary = Summary(
        seed=seed,
        recipe=recipe,
        dense=dense,
        pruned=pruned,
        date=dt.datetime.now(tz=dt.UTC).date().isoformat(),
        seconds=time.perf_counter() - start,
        versions=_versions(),
        files=paths(out),
    )
    write_files(out, summary, model)
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


def _check(recipe: Recipe) -> None:
    if recipe.epochs < 1:
        raise ArgumentError(
            f"the demo needs at least one epoch of training, got {recipe.epochs}.\n"
            "Type `--epochs 1` or more, or leave it out for the usual number."
        )


def _train_(
    model: LeNet5, digits: Digits, recipe: Recipe, on_epoch: Callable[[Epoch], object]
) -> Outcome:
    history: list[Epoch] = []
    for epoch in train_(model, digits, recipe):
        history.append(epoch)
        on_epoch(epoch)
    return Outcome(history=tuple(history), test_error=error_rate(model, digits.test))


def _versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("diffprune", "torch", "scikit-learn")}
    return {"python": platform.python_version(), **packages}

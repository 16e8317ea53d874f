"""What sigma does to a long run: LeNet-5 on digits, six times as long as it needs.

`python -m paper ablation sigma` prints the table. Sigma is how far from its threshold a
unit still feels the penalty. Strengths are in proportion to it, so that at the
threshold itself all runs are pushed alike.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.table import Table

from diffprune._core.interleaved import one_thread
from diffprune.lab import Recipe, read_run, train
from diffprune.lab.formatting import architecture
from paper.lenet5_recipes import digits_sigmoid, lenet5_digits

SEEDS = range(3)
SIGMAS = (1.0, 0.1)
EPOCHS = (20, 40, 80, 120)
STRENGTH = 1e-4


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a run stood after some epochs.

    Attributes:
        sigma: Of all gates.
        seed: Of the run.
        epoch: After so many.
        raw: Open units of every gate.
        validation_error: In percent.
        test_error: In percent.
    """

    sigma: float
    seed: int
    epoch: int
    raw: dict[str, int]
    validation_error: float | None
    test_error: float


def recipe(sigma: float, seed: int) -> Recipe:
    """The learning rate stays, as in the paper: closing is not ended by its decay."""
    usual = digits_sigmoid(seed)
    return replace(
        usual,
        epochs=max(EPOCHS),
        decay="constant",
        gate={**usual.gate, "sigma": sigma},
        strength=STRENGTH * sigma,
    )


def run(sigma: float, seed: int) -> list[Result]:
    """Train once, and look several times."""
    with tempfile.TemporaryDirectory() as out:
        train(lenet5_digits, recipe(sigma, seed), out=out)
        return looks(sigma, Path(out))


def looks(sigma: float, folder: Path) -> list[Result]:
    """How a run stood after each of `EPOCHS`.

    Args:
        sigma: Of its gates.
        folder: Of the run.
    """
    done = read_run(folder)
    return [
        Result(
            sigma=sigma,
            seed=done.recipe.seed,
            epoch=epoch.number,
            raw=dict(epoch.raw),
            validation_error=epoch.validation_error,
            test_error=epoch.test_error,
        )
        for epoch in done.epochs
        if epoch.number in EPOCHS
    ]


def table(results: Sequence[Result]) -> Table:
    """A row for every look."""
    shown = Table("sigma", "seed", "epoch", "open gates")
    for name in ("validation %", "test %"):
        shown.add_column(name, justify="right")
    for r in results:
        shown.add_row(
            f"{r.sigma}",
            str(r.seed),
            str(r.epoch),
            architecture(r.raw),
            f"{r.validation_error:.2f}",
            f"{r.test_error:.2f}",
        )
    return shown


def measure() -> list[Result]:
    """Run everything, for minutes, on one thread."""
    with one_thread():
        return [r for sigma in SIGMAS for seed in SEEDS for r in run(sigma, seed)]

"""What makes closing come to rest: LeNet-5 on MNIST, 5,000 training images held out.

`python -m paper ablation stopping` prints the table. All runs have the strengths that
the paper prints. Two things are tried: a smaller sigma, which the paper does not
print, and strengths that fade to nothing. Runs are in `runs/stopping`; interrupted,
the same command goes on.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.table import Table

from diffprune._core.interleaved import one_thread
from diffprune.lab import Recipe, Run, read_run, train
from diffprune.lab.formatting import architecture
from diffprune.lab.runs.records import SUMMARY
from paper.recipes import (
    lenet5_mnist_validated,
    lenet5_mnist_validated_fading,
    table1_sigmoid,
)
from paper.records import ROOT

RUNS: Final = ROOT / "runs" / "stopping"
LOOKS: Final = (10, 20, 30, 40, 50, 75, 100)
"""Epochs after which a run is looked at."""


@dataclass(frozen=True)
class Choice:
    """What is tried, and for how many epochs."""

    sigma: float
    epochs: int
    fades: bool = False


CHOICES: Final = (
    Choice(0.1, 50),
    Choice(0.3, 50),
    Choice(1.0, 50),
    Choice(1.0, 100, fades=True),
)


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a run stood after some epochs.

    Attributes:
        sigma: Of all gates.
        fades: Whether strengths fade.
        epoch: After so many.
        raw: Open units of every gate.
        parameters: Of the network as it was then, closed units included.
        macs: Multiply-adds of an image.
        train_error: In percent, over the epoch, with the noise of the gates.
        validation_error: In percent, of the 5,000 images that were held out.
    """

    sigma: float
    fades: bool
    epoch: int
    raw: dict[str, int]
    parameters: int
    macs: int
    train_error: float | None
    validation_error: float | None


def recipe(choice: Choice) -> Recipe:
    """The paper's second row but for the choice, seed 0."""
    usual = table1_sigmoid()
    ending = "-fading" if choice.fades else ""
    return replace(
        usual,
        name=f"lenet5-sigma{choice.sigma}{ending}",
        epochs=choice.epochs,
        gate={**usual.gate, "sigma": choice.sigma},
    )


def run(choice: Choice, runs: Path = RUNS) -> list[Result]:
    """Train once, or go on, and look several times."""
    asked = recipe(choice)
    make_task = (
        lenet5_mnist_validated_fading if choice.fades else lenet5_mnist_validated
    )
    folder = runs / asked.folder_name
    if not (folder / SUMMARY).exists():
        train(make_task, asked, out=folder)
    return _looks(choice, read_run(folder))


def _looks(choice: Choice, done: Run) -> list[Result]:
    return [
        Result(
            sigma=choice.sigma,
            fades=choice.fades,
            epoch=epoch.number,
            raw=dict(epoch.raw),
            parameters=epoch.parameters,
            macs=epoch.macs,
            train_error=epoch.train_error,
            validation_error=epoch.validation_error,
        )
        for epoch in done.epochs
        if epoch.number in LOOKS
    ]


def table(results: Sequence[Result]) -> Table:
    """A row for every look."""
    shown = Table("sigma", "strengths", "epoch", "open gates")
    for name in ("parameters", "MACs", "train %", "validation %"):
        shown.add_column(name, justify="right")
    for r in results:
        shown.add_row(
            f"{r.sigma}",
            "fade" if r.fades else "stay",
            str(r.epoch),
            architecture(r.raw),
            f"{r.parameters:,}",
            f"{r.macs:,}",
            f"{r.train_error:.2f}",
            f"{r.validation_error:.2f}",
        )
    return shown


def measure() -> list[Result]:
    """Run everything, for an hour, on one thread."""
    with one_thread():
        return [result for choice in CHOICES for result in run(choice)]

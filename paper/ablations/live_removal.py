"""What live removal changes: LeNet-5 on digits, closed units removed or kept.

`python -m paper ablation live_removal` prints the table. Both runs of a seed see the
same digits in the same order, and their gates have no noise: they agree but for what
training makes of rounding, and one is faster.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.table import Table

from diffprune._core.interleaved import one_thread
from diffprune.lab import Run, read_run, train
from diffprune.lab.formatting import architecture
from paper.lenet5_recipes import KEPT, digits_sigmoid, lenet5_digits

SEEDS = range(3)


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a run ended.

    Attributes:
        removed: Whether closed units left the network while it trained.
        seed: Of the run.
        raw: Open units of every gate.
        loss: Mean over the last epoch.
        test_error: In percent.
        seconds: On the processor, one thread, in every epoch.
    """

    removed: bool
    seed: int
    raw: dict[str, int]
    loss: float
    test_error: float
    seconds: list[float]


def run(seed: int, *, removed: bool) -> Result:
    """Train once."""
    recipe = digits_sigmoid(seed)
    if not removed:
        recipe = replace(recipe, pruner=KEPT)
    with tempfile.TemporaryDirectory() as out:
        train(lenet5_digits, recipe, out=out)
        return _result(read_run(Path(out)), removed=removed)


def _result(done: Run, *, removed: bool) -> Result:
    last = done.epochs[-1]
    return Result(
        removed=removed,
        seed=done.recipe.seed,
        raw=dict(last.raw),
        loss=last.loss,
        test_error=last.test_error,
        seconds=[epoch.processor_seconds for epoch in done.epochs],
    )


def table(results: Sequence[Result]) -> Table:
    """A row for every run."""
    shown = Table("closed units", "seed", "open gates")
    for name in ("loss", "test %", "s, first epoch", "s, last epoch", "s, all"):
        shown.add_column(name, justify="right")
    for r in results:
        shown.add_row(
            "removed" if r.removed else "kept",
            str(r.seed),
            architecture(r.raw),
            f"{r.loss:.5f}",
            f"{r.test_error:.2f}",
            f"{r.seconds[0]:.2f}",
            f"{r.seconds[-1]:.2f}",
            f"{sum(r.seconds):.1f}",
        )
    return shown


def measure() -> list[Result]:
    """Run everything, for minutes, on one thread."""
    with one_thread():
        return [run(seed, removed=r) for seed in SEEDS for r in (False, True)]

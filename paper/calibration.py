"""Find strengths with which WRN-10-2 ends near the multiply-adds that the paper prints.

`python -m paper calibrate` prints what was tried. The paper says how strengths of the
three groups compare with each other; what is looked for is one factor on them, for low
and for high compression. A trial is the first part of the run itself, up to the step
from which gates are held, so its network is the one that the run will end with. The
5,000 held-out training images judge it, and no trial sees the images of the test.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.table import Table

from diffprune._core.interleaved import one_thread
from diffprune.lab import Recipe, Task, read_run, train
from diffprune.lab.formatting import architecture
from diffprune.lab.image_batches import Split
from paper import recipes as r
from paper.data.cifar10 import load_cifar10
from paper.fading_strengths import fading_task
from paper.tables.wide_resnet_table import WRN_10_2

NEAR: Final = 0.02
"""How far from the paper a share may be."""
MOST_TRIALS: Final = 4
_SLOPE: Final = -0.25
"""How a share is taken to change when a factor grows e-fold, before it is known."""
_LARGEST_STEP: Final = math.log(4)


@dataclass(frozen=True, kw_only=True)
class Aim:
    """What is looked for.

    Attributes:
        recipe: Of the run that the strengths are for.
        papers: Strengths of the paper.
        share: Of the multiply-adds, in the end.
        first: Factor to begin with.
    """

    recipe: r.MakeRecipe
    papers: Mapping[str, float]
    share: float
    first: float


AIMS: Final[Mapping[str, Aim]] = {
    "low": Aim(recipe=r.wide_wrn_low, papers=r.LOW, share=0.71, first=4.0),
    "high": Aim(recipe=r.wide_wrn_high, papers=r.HIGH, share=0.42, first=1.5),
}


@dataclass(frozen=True, kw_only=True)
class Result:
    """A trial.

    Attributes:
        aim: What it was for.
        factor: On the paper's strengths.
        widths: Units that are left, gate by gate.
        share: Of the multiply-adds.
        validation_error: In percent, on held-out images, when gates are held.
    """

    aim: str
    factor: float
    widths: dict[str, int]
    share: float
    validation_error: float


def trial_recipe(aim: Aim, factor: float) -> Recipe:
    """The run up to the step from which gates are held."""
    whole = aim.recipe(0)
    epochs = round(r.FADED * whole.epochs)
    return replace(
        whole,
        epochs=epochs,
        decay_after=tuple(after for after in whole.decay_after if after < epochs),
        strength=r.scaled(aim.papers, factor),
    )


def trial_task(recipe: Recipe) -> Task:
    """WRN-10-2, judged by held-out images; strengths have faded in the end."""
    data = r.few_and_small(load_cifar10(validation=True))
    assert data.validation is not None  # noqa: S101 - asked for above
    judged = Split(data.train, None, data.validation)
    task = r.wide_wrn_task(judged, recipe)
    return fading_task(task, recipe, start=r.FADES / r.FADED, end=1.0)


def run(name: str, factor: float) -> Result:
    """Try one factor."""
    recipe = trial_recipe(AIMS[name], factor)
    with tempfile.TemporaryDirectory() as out:
        train(trial_task, recipe, out=out)
        done = read_run(Path(out))
    assert done.outcome is not None  # noqa: S101 - `train` has returned
    return Result(
        aim=name,
        factor=factor,
        widths=dict(done.outcome.effective),
        share=done.outcome.macs / WRN_10_2.macs,
        validation_error=done.outcome.test_error,
    )


def search(
    name: str, aim: Aim, attempt: Callable[[str, float], Result]
) -> Iterator[Result]:
    """Try factors until one is near the aim, a few at most.

    Args:
        name: Of the aim.
        aim: What is looked for.
        attempt: One trial.
    """
    found = list[Result]()
    factor = aim.first
    for _ in range(MOST_TRIALS):
        found.append(attempt(name, factor))
        yield found[-1]
        if abs(found[-1].share - aim.share) <= NEAR:
            return
        factor = next_factor(found, aim.share)


def next_factor(found: Sequence[Result], share: float) -> float:
    """Where a line has the share, to two digits; factors are on a logarithmic scale.

    The line goes through the nearest trials on both sides. While all are on one side,
    it has a usual slope.

    Args:
        found: Trials so far.
        share: What is aimed at.
    """
    weak = max((x for x in found if x.share > share), key=_factor, default=None)
    strong = min((x for x in found if x.share <= share), key=_factor, default=None)
    start = weak or strong
    assert start is not None  # noqa: S101 - one trial at least
    slope = _SLOPE
    if weak is not None and strong is not None:
        slope = (strong.share - weak.share) / math.log(strong.factor / weak.factor)
    step = (share - start.share) / slope
    step = min(max(step, -_LARGEST_STEP), _LARGEST_STEP)
    return float(f"{start.factor * math.exp(step):.2g}")


def _factor(result: Result) -> float:
    return result.factor


def chosen(results: Sequence[Result], name: str) -> Result:
    """Which trial of an aim ended nearest to it; errors are not looked at."""
    mine = (result for result in results if result.aim == name)
    return min(mine, key=lambda result: abs(result.share - AIMS[name].share))


def table(results: Sequence[Result]) -> Table:
    """A row for every trial."""
    shown = Table("aim", "share aimed at")
    for heading in ("factor", "units", "share", "validation %", "taken"):
        shown.add_column(heading, justify="right")
    for result in results:
        shown.add_row(
            result.aim,
            f"{AIMS[result.aim].share:.0%}",
            f"{result.factor:g}",
            architecture(result.widths),
            f"{result.share:.1%}",
            f"{result.validation_error:.2f}",
            "yes" if result is chosen(results, result.aim) else "",
        )
    return shown


def measure() -> list[Result]:
    """Try for both aims, for minutes, on one thread."""
    with one_thread():
        return [
            result for name, aim in AIMS.items() for result in search(name, aim, run)
        ]

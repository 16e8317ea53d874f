"""Find strengths with which WRN-10-2 ends near the multiply-adds that the paper prints.

`python -m paper calibrate` prints what was tried. The paper says how strengths of the
three groups compare with each other; what is looked for is one factor on them, for low
and for high compression. A trial goes as far as the epoch from which gates are held,
on a fifth of the images and with strengths that are five times as high: logits are
pushed as far in all. It is given up when it is too small, or will be far too large.
Held-out training images judge it, and no trial sees the images of the test.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Final

import torch
from rich.table import Table

from diffprune._core.interleaved import one_thread
from diffprune.lab import Epoch, Recipe, Task, read_run, train
from diffprune.lab.formatting import architecture
from diffprune.lab.image_batches import Examples, Split
from paper import wide_resnet_recipes as r
from paper.data.cifar10 import load_cifar10
from paper.fading_strengths import faded, fading_task
from paper.recipe_parts import MakeRecipe, scaled, without_test
from paper.tables.wide_resnet_table import WRN_10_2, wide_macs

NEAR: Final = 0.02
"""How far from the paper a share may be."""
FAR: Final = 0.1
"""How much above it a share may be when the learning rate falls first."""
MOST_TRIALS: Final = 3
SHORTER: Final = 5
"""How many times as many steps an epoch of the run has as an epoch of a trial."""
_SLOPE: Final = -0.25
"""How a share is taken to change when a factor grows e-fold, where no trial says it."""


@dataclass(frozen=True, kw_only=True)
class Aim:
    """What is looked for.

    Attributes:
        recipe: Of the run that the strengths are for.
        papers: Strengths of the paper.
        share: Of the multiply-adds, in the end.
        first: Factor to begin with.
    """

    recipe: MakeRecipe
    papers: Mapping[str, float]
    share: float
    first: float


AIMS: Final[Mapping[str, Aim]] = {
    "low": Aim(recipe=r.wide_wrn_low, papers=r.LOW, share=0.71, first=7.0),
    "high": Aim(recipe=r.wide_wrn_high, papers=r.HIGH, share=0.42, first=2.5),
}


@dataclass(frozen=True, kw_only=True)
class Result:
    """A trial.

    Attributes:
        aim: What it was for.
        factor: On the paper's strengths.
        shares: Of the multiply-adds, after every epoch until it was given up or ended.
        widths: Units that were open then, gate by gate.
        validation_error: In percent, on held-out images, then.
    """

    aim: str
    factor: float
    shares: Sequence[float]
    widths: Mapping[str, int]
    validation_error: float

    @property
    def share(self) -> float:
        """What was left of the multiply-adds."""
        return self.shares[-1]


class _GivenUpError(Exception):
    """A trial cannot end near its aim."""


def trial_recipe(aim: Aim, factor: float) -> Recipe:
    """The run up to the epoch from which gates are held; every step pushes harder."""
    whole = aim.recipe(0)
    epochs = round(r.FADED * whole.epochs)
    return replace(
        whole,
        epochs=epochs,
        decay_after=tuple(after for after in whole.decay_after if after < epochs),
        strength=scaled(aim.papers, SHORTER * factor),
    )


def trial_task(recipe: Recipe) -> Task:
    """WRN-10-2, judged by held-out images; strengths have faded in the end."""
    data = without_test(r.few_and_small(load_cifar10(validation=True)))
    judged = Split(_fewer(data.train), None, _fewer(data.test))
    task = r.wide_wrn_task(judged, recipe)
    return fading_task(task, recipe, start=r.FADES / r.FADED, end=1.0)


def _fewer(examples: Examples) -> Examples:
    return examples.take(torch.arange(len(examples) // SHORTER))


def run(name: str, factor: float) -> Result:
    """Try one factor."""
    aim = AIMS[name]
    recipe = trial_recipe(aim, factor)

    def note(epoch: Epoch) -> None:
        if is_hopeless(aim, recipe, epoch):
            raise _GivenUpError

    with tempfile.TemporaryDirectory() as out:
        with suppress(_GivenUpError):
            train(trial_task, recipe, out=out, on_epoch=note)
        epochs = read_run(Path(out)).epochs
    return Result(
        aim=name,
        factor=factor,
        shares=[*map(share_of, epochs)],
        widths=dict(epochs[-1].raw),
        validation_error=epochs[-1].test_error,
    )


def share_of(epoch: Epoch) -> float:
    """What open units cost of the multiply-adds, whether closed ones have left or not.

    Units leave every hundred steps, which is four epochs of a trial.
    """
    open_units = [*epoch.raw.values()]
    groups = [[pair] for pair in zip(open_units[::2], open_units[1::2], strict=True)]
    return wide_macs(groups, WRN_10_2.side) / WRN_10_2.macs


def is_hopeless(aim: Aim, recipe: Recipe, epoch: Epoch) -> bool:
    """Whether a trial is too small already, or will be too large.

    Closed units do not come back, and few close once the learning rate has fallen.
    """
    share = share_of(epoch)
    has_fallen = epoch.number >= recipe.decay_after[0]
    return share < aim.share - NEAR or (has_fallen and share > aim.share + FAR)


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
        factor = next_factor(found, aim)


def next_factor(found: Sequence[Result], aim: Aim) -> float:
    """What to try next, to two digits.

    If the last trial has passed the share that is aimed at, a run that is pushed as
    much in all as this one was until then would end there. Otherwise shares are taken
    to fall with the logarithm of the factor. What an earlier trial has shown to be too
    much, or too little, is not tried again.

    Args:
        found: Trials so far.
        aim: What is looked for.
    """
    last = found[-1]
    passed = passing(last, aim)
    step = math.exp((aim.share - last.share) / _SLOPE) if passed is None else passed
    factor = last.factor * step
    least = max((x.factor for x in found if x.share > aim.share), default=0.0)
    most = min((x.factor for x in found if x.share <= aim.share), default=math.inf)
    if not least < factor < most:
        factor = math.sqrt(least * most)
    return float(f"{factor:.2g}")


def passing(trial: Result, aim: Aim) -> float | None:
    """When a trial passed the share that is aimed at, as a share of its whole push.

    Args:
        trial: Any.
        aim: What it was for.
    """
    recipe = trial_recipe(aim, trial.factor)
    pushes = [_push(recipe, epoch) for epoch in range(recipe.epochs)]
    done = [0.0, *accumulate(pushes)]
    points = zip(done, [1.0, *trial.shares], strict=False)
    for (before, above), (after, below) in pairwise(points):
        if below <= aim.share:
            part = (above - aim.share) / (above - below)
            return (before + part * (after - before)) / done[-1]
    return None


def _push(recipe: Recipe, epoch: int) -> float:
    """How far an epoch moves logits: its learning rate times its part of strengths."""
    middle = (epoch + 0.5) / recipe.epochs
    part = faded(1.0, middle, start=r.FADES / r.FADED, end=1.0)
    assert isinstance(part, float)  # noqa: S101 - as what was given
    return recipe.lr_factor(epoch) * part


def chosen(results: Sequence[Result], name: str) -> Result:
    """Which trial of an aim came to its end nearest to it; errors are not looked at.

    Where all were given up, it is the one that had come nearest.
    """
    mine = [result for result in results if result.aim == name]
    whole = trial_recipe(AIMS[name], 1.0).epochs
    ended = [result for result in mine if len(result.shares) == whole]
    return min(ended or mine, key=lambda result: abs(result.share - AIMS[name].share))


def table(results: Sequence[Result]) -> Table:
    """A row for every trial."""
    shown = Table("aim", "share aimed at")
    for heading in ("factor", "epochs", "units", "share", "validation %", "taken"):
        shown.add_column(heading, justify="right")
    for result in results:
        shown.add_row(
            result.aim,
            f"{AIMS[result.aim].share:.0%}",
            f"{result.factor:g}",
            f"{len(result.shares)}",
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

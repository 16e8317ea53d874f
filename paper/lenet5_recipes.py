"""LeNet-5 as the paper trains it, and as it is tried here: tasks and recipes.

A task is a function from a recipe to a model and data; a recipe is a function from a
seed to the numbers of a run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from diffprune.lab import Recipe, Task
from diffprune.lab.digits import load_digits
from diffprune.lab.image_batches import Batches, Split
from paper.data.mnist import load_mnist
from paper.fading_strengths import fading_task
from paper.models.lenet5 import PLACES, LeNet5, Widths, channels_last
from paper.recipe_parts import MakeRecipe, papers_gate, scaled, without_test
from paper.teaching import taught_once_held, teacher_recipe

KEPT: Final = {"remove_every": 10**9}
"""Nothing is removed before the end."""

PAPERS_SIGMOID: Final = Widths(10, 20, 71, 35)
"""What the paper's run with a penalty has left of LeNet-5."""

_REST: Final = (30, 60)
"""From which to which epoch strengths of LeNet-5 fade: 45 whole ones in all."""


def lenet5_mnist(recipe: Recipe) -> Task:
    """LeNet-5 on all 60,000 training images of MNIST, as the paper has it."""
    return lenet5_task(load_mnist(), recipe)


def lenet5_mnist_held_out(recipe: Recipe) -> Task:
    """LeNet-5 on 55,000 images of MNIST; the 5,000 others stand where the test was.

    It is what choices are made with, so it must not see the images of the test.
    """
    return lenet5_task(without_test(load_mnist(validation=True)), recipe)


def lenet5_mnist_fading(recipe: Recipe) -> Task:
    """LeNet-5 on all of MNIST; strengths fade, and then gates stay as they are."""
    start, end = (epoch / recipe.epochs for epoch in _REST)
    return fading_task(lenet5_mnist(recipe), recipe, start=start, end=end, hold=True)


def lenet5_mnist_held(recipe: Recipe) -> Task:
    """LeNet-5 on all of MNIST; gates stay when the learning rate begins to fall.

    Until then strengths are whole for half of the time, and fade in the other half.
    """
    return _held_task(load_mnist(), recipe)


def lenet5_mnist_taught(recipe: Recipe) -> Task:
    """The same, with a teacher from the time on when gates stay."""
    data = load_mnist()
    return taught_once_held(_held_task(data, recipe), data, recipe)


def _held_task(data: Split, recipe: Recipe) -> Task:
    end = recipe.decay_after[0] / recipe.epochs
    task = lenet5_task(data, recipe)
    return fading_task(task, recipe, start=end / 2, end=end, hold=True)


def lenet5_digits(recipe: Recipe) -> Task:
    """LeNet-5 on the handwritten digits of scikit-learn."""
    return lenet5_task(load_digits(), recipe)


def lenet5_task(data: Split, recipe: Recipe) -> Task:
    """LeNet-5 on images of digits, with the gates of a recipe at the four places."""
    evaluated = partial(Batches, size=1_000)
    return Task(
        model=channels_last(LeNet5(papers_gate(recipe))),
        train=Batches(data.train, recipe.batch_size, shuffle=True),
        validation=None if data.validation is None else evaluated(data.validation),
        test=evaluated(data.test),
    )


def table1_softmax(seed: int = 0) -> Recipe:
    """Table 1, DiffPrune: units compete, nothing is penalised, strong noise."""
    return Recipe(
        name="lenet5-softmax",
        epochs=200,
        batch_size=100,
        lr=5e-4,
        gate={"u": "softmax", "dropout": 0.5},
        strength=0.0,
        seed=seed,
    )


def table1_sigmoid(seed: int = 0) -> Recipe:
    """Table 1, DiffPrune with regularisation: independent units, mild noise."""
    return replace(
        table1_softmax(seed),
        name="lenet5-sigmoid",
        gate={"u": "sigmoid", "dropout": 0.15},
        strength=dict(zip(PLACES, (1e-5, 1e-5, 2e-5, 2e-5), strict=True)),
    )


def table1_sigmoid_fading(seed: int = 0) -> Recipe:
    """The same with strengths that fade and gates that then stay, and half as long.

    When they fade follows from the widths of the runs whose strengths stay, and from no
    error: after some 45 epochs those are as small as the paper's row.
    """
    return replace(table1_sigmoid(seed), name="lenet5-sigmoid-fading", epochs=100)


def table1_sigmoid_held(seed: int = 0) -> Recipe:
    """The same with gates that stay, and a learning rate that falls from then on.

    From when follows from the widths of runs before: with strengths that fade they have
    no more weights than the paper's row after some 45 epochs, and a few are to spare.
    """
    return replace(
        table1_sigmoid(seed),
        name="lenet5-sigmoid-held",
        epochs=90,
        decay="linear",
        decay_after=(50,),
    )


def table1_sigmoid_budget(seed: int = 0) -> Recipe:
    """The same with a budget of the paper's parameters and multiply-adds.

    A budget closes gates in three tenths of the epochs and holds the others, so nobody
    has to say when it is time. As long as `table1_sigmoid_held`, with its rate.
    """
    return replace(
        table1_sigmoid_held(seed),
        name="lenet5-sigmoid-budget",
        strength=None,
        budget={"parameters": PAPERS_SIGMOID.parameters, "macs": PAPERS_SIGMOID.macs},
    )


def table1_softmax_held(seed: int = 0) -> Recipe:
    """Gates that compete, then stay, and a learning rate that falls from then on.

    The runs whose gates go on learning are as small as the paper's row after 37 epochs;
    no error was looked at for that.
    """
    return replace(
        table1_softmax(seed),
        name="lenet5-softmax-held",
        epochs=80,
        decay="linear",
        decay_after=(38,),
    )


def table1_sigmoid_taught(seed: int = 0) -> Recipe:
    """Gates that stay, and from then on a teacher beside the labels."""
    return replace(table1_sigmoid_held(seed), name="lenet5-sigmoid-taught")


def table1_softmax_taught(seed: int = 0) -> Recipe:
    """Gates that compete, then stay, and from then on a teacher beside the labels."""
    return replace(table1_softmax_held(seed), name="lenet5-softmax-taught")


def table1_teacher(seed: int = 0) -> Recipe:
    """The dense network that teaches both, with batch norms and dropout."""
    return teacher_recipe(seed, has_norms=True)


def table1_sigmoid_kept(seed: int = 0) -> Recipe:
    """The same without live removal: closed units stay until the end."""
    return replace(table1_sigmoid(seed), name="lenet5-sigmoid-kept", pruner=KEPT)


def table1_sigmoid_of_sigma(seed: int = 0, *, sigma: float) -> Recipe:
    """The same with another sigma, which the paper does not give.

    Strengths are in proportion to it, so that at the threshold itself all are pushed
    alike. A narrow one lets go of units that the task has pulled away from there.
    """
    usual = table1_sigmoid(seed)
    assert isinstance(usual.strength, Mapping)  # noqa: S101 - by place
    return replace(
        usual,
        name=f"lenet5-sigmoid-sigma-{sigma}",
        gate={**usual.gate, "sigma": sigma},
        strength=scaled(usual.strength, sigma),
    )


def trial(
    seed: int = 0,
    *,
    name: str,
    whole: MakeRecipe,
    epochs: int,
    gate: Mapping[str, Any] | None = None,
) -> Recipe:
    """The first epochs of a longer run, to choose with; the rate is the same in all.

    Args:
        seed: Of the run.
        name: What is tried.
        whole: The longer run.
        epochs: How many of it.
        gate: What gates have that those of the longer run have not.
    """
    usual = whole(seed)
    return replace(
        usual,
        name=f"lenet5-trial-{name}",
        epochs=epochs,
        gate={**usual.gate, **(gate or {})},
    )


def table1_dense(seed: int = 0) -> Recipe:
    """The same network without gates: what the other rows compare with."""
    return replace(table1_softmax(seed), name="lenet5-dense", gate={}, strength=None)


def digits_sigmoid(seed: int = 0) -> Recipe:
    """A short run on few digits; its numbers were chosen on the validation digits."""
    return Recipe(
        name="lenet5-digits",
        epochs=20,
        batch_size=50,
        lr=2e-3,
        gate_lr=1e-2,
        decay="cosine",
        strength=1e-4,
        pruner={"remove_every": 24},
        seed=seed,
    )


TRIALS: Final[Sequence[MakeRecipe]] = (
    partial(
        trial,
        name="sigma-0.1",
        whole=partial(table1_sigmoid_of_sigma, sigma=0.1),
        epochs=100,
    ),
    partial(trial, name="softmax", whole=table1_softmax, epochs=40),
    partial(
        trial,
        name="softmax-noise-stays",
        whole=table1_softmax,
        epochs=40,
        gate={"learn_dropout": False},
    ),
)
"""What was tried on held-out images of MNIST."""

"""What the paper trains and how: its tasks and recipes, and small ones to try it with.

A task is a function from a recipe to a model and data; a recipe is a function from a
seed to the numbers of a run. `TASKS` lists them by the name that `python -m paper
train` takes.

The small wide ResNets are of the same family as the paper's, with the same gates in the
same places. Over a run the penalty moves a logit by about 0.4 * strength * (sum of
learning rates) / (1 - momentum). At first the logits are 0.02 to 0.22 above their
thresholds, and thirty epochs have strengths of their own to get there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.optim import SGD

from diffprune.gates import Gate
from diffprune.lab import Recipe, Task
from diffprune.lab.digits import load_digits
from diffprune.lab.image_batches import Batches, Split
from diffprune.lab.training.task import MakeTask, gate_of
from paper.data.cifar10 import augment, halved, load_cifar10, normalise
from paper.data.mnist import load_mnist
from paper.fading_strengths import fading_task
from paper.models.lenet5 import PLACES, LeNet5, Widths, channels_last
from paper.models.wide_resnet import WideResNet
from paper.teaching import taught, taught_once_held, teacher, teacher_recipe

_KEPT: Final = {"remove_every": 10**9}
"""Nothing is removed before the end."""
LOW: Final = {"group1.*": 1e-5, "group2.*": 1e-5, "group3.*": 5e-5}
HIGH: Final = {"group1.*": 2e-5, "group2.*": 7e-5, "group3.*": 3e-4}
"""The paper's strengths for WRN-28-10."""
_LOW_FACTOR: Final = 7.0
_HIGH_FACTOR: Final = 4.6
"""Factors on the paper's strengths; `python -m paper calibrate` shows the trials."""
_SMALL_LOW: Final = {"group1.*": 3e-5, "group2.*": 3e-5, "group3.*": 3e-5}
_SMALL_HIGH: Final = {"group1.*": 3e-5, "group2.*": 7e-5, "group3.*": 1e-4}

PAPERS_SIGMOID: Final = Widths(10, 20, 71, 35)
"""What the paper's run with a penalty has left of LeNet-5."""

FADES, FADED = 0.3, 0.75
"""From when to when strengths of wide ResNets fade, in shares of the training."""
_REST: Final = (30, 60)
"""From which to which epoch strengths of LeNet-5 fade: 45 whole ones in all."""

_FEW: Final = 15_000
"""Images of half the side that WRN-10-2 and WRN-10-4 learn from."""
_FEWER: Final = 5_000
"""A third of them: far fewer than WRN-10-4 has weights for."""

MakeRecipe = Callable[[int], Recipe]
"""From a seed to a recipe."""


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


def wrn_cifar10(recipe: Recipe) -> Task:
    """WRN-28-10 on all 50,000 training images, mirrored and shifted at random."""
    return wide_resnet_task(
        WideResNet(28, 10, papers_gate(recipe)), load_cifar10(), recipe
    )


def small_wrn_cifar10(recipe: Recipe) -> Task:
    """WRN-10-1 on 45,000 images, mirrored and shifted; 5,000 are to choose with."""
    data = load_cifar10(validation=True)
    return wide_resnet_task(WideResNet(10, 1, papers_gate(recipe)), data, recipe)


def wide_wrn_cifar10(recipe: Recipe) -> Task:
    """WRN-10-2 on 15,000 images of 16 pixels a side; 5,000 are to choose with.

    Where there are strengths, the push to close fades while there is time to heal. A
    gate that closes at a low learning rate costs accuracy that the few steps left do
    not bring back. So strengths are whole until the learning rate falls first, and zero
    before it falls for the last time. From then on gates stay as they are.
    """
    task = wide_wrn_task(few_and_small(load_cifar10(validation=True)), recipe)
    return fading_task(task, recipe, start=FADES, end=FADED, hold=True)


def wider_wrn_cifar10(recipe: Recipe) -> Task:
    """WRN-10-4 on the same images: with four times the weights it has more to spare."""
    data = few_and_small(load_cifar10(validation=True))
    return wide_wrn_task(data, recipe, widen=4)


def wider_wrn_taught(recipe: Recipe) -> Task:
    """The same, taught by the network of seed 0 that is as it is."""
    return taught(wider_wrn_cifar10(recipe), wider_wrn_cifar10, wider_wrn_dense())


def spare_wrn_cifar10(recipe: Recipe) -> Task:
    """WRN-10-4 on a third of the images, which it learns better than it generalises.

    So it has weights to spare, as the paper's network has. Nothing is chosen, so no
    images are held out.
    """
    data = few_and_small(load_cifar10(), count=_FEWER)
    return wide_wrn_task(data, recipe, widen=4)


def wide_wrn_task(data: Split, recipe: Recipe, widen: int = 2) -> Task:
    """WRN-10-2, or a wider one, on images like those of CIFAR-10."""
    model = channels_last(WideResNet(10, widen, papers_gate(recipe)))
    return wide_resnet_task(model, data, recipe)


def few_and_small(data: Split, count: int = _FEW) -> Split:
    """The first images to learn from, and all of the others, at half the side."""
    few = data.train.take(torch.arange(min(count, len(data.train))))
    held_out = None if data.validation is None else halved(data.validation)
    return Split(halved(few), held_out, halved(data.test))


def without_test(data: Split) -> Split:
    """Held-out images where those of the test were, which nothing sees then."""
    assert data.validation is not None  # noqa: S101 - asked for, to choose with
    return Split(data.train, None, data.validation)


def lenet5_task(data: Split, recipe: Recipe) -> Task:
    """LeNet-5 on images of digits, with the gates of a recipe at the four places."""
    evaluated = partial(Batches, size=1_000)
    return Task(
        model=channels_last(LeNet5(papers_gate(recipe))),
        train=Batches(data.train, recipe.batch_size, shuffle=True),
        validation=None if data.validation is None else evaluated(data.validation),
        test=evaluated(data.test),
    )


def wide_resnet_task(model: WideResNet, data: Split, recipe: Recipe) -> Task:
    """A wide ResNet on images like those of CIFAR-10."""
    evaluated = partial(Batches, size=100, transform=normalise)
    return Task(
        model=model,
        train=Batches(data.train, recipe.batch_size, shuffle=True, transform=augment),
        validation=None if data.validation is None else evaluated(data.validation),
        test=evaluated(data.test),
        optimizer=partial(SGD, momentum=0.9, nesterov=True),
    )


def papers_gate(recipe: Recipe) -> Callable[[int], nn.Module]:
    """What makes the gates of a recipe, with the paper's own start."""
    if recipe.is_dense:
        return gate_of(recipe)
    return partial(Gate, **{"start": "paper", **recipe.gate})


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
    return replace(table1_sigmoid(seed), name="lenet5-sigmoid-kept", pruner=_KEPT)


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


def wrn_low(seed: int = 0) -> Recipe:
    """Section 4.2, low compression: no accuracy is to be lost."""
    return Recipe(
        name="wrn-28-10-low",
        epochs=200,
        batch_size=120,
        lr=0.1,
        weight_decay=5e-4,
        decay="steps",
        decay_after=(60, 120, 160),
        strength=LOW,
        seed=seed,
    )


def wrn_high(seed: int = 0) -> Recipe:
    """Section 4.2, high compression: little accuracy is to be lost."""
    return replace(wrn_low(seed), name="wrn-28-10-high", strength=HIGH)


def small_wrn_low(seed: int = 0) -> Recipe:
    """Low compression in thirty epochs; the learning rate falls as early in them."""
    return replace(
        wrn_low(seed),
        name="wrn-10-1-low",
        epochs=30,
        decay_after=(9, 18, 24),
        strength=_SMALL_LOW,
    )


def small_wrn_high(seed: int = 0) -> Recipe:
    """High compression in thirty epochs."""
    return replace(small_wrn_low(seed), name="wrn-10-1-high", strength=_SMALL_HIGH)


def small_wrn_dense(seed: int = 0) -> Recipe:
    """The small network as it is, without gates: what the others compare with."""
    return replace(small_wrn_low(seed), name="wrn-10-1-dense", strength=None)


def wide_wrn_dense(seed: int = 0) -> Recipe:
    """WRN-10-2 as it is, in twenty epochs; the learning rate falls as early in them."""
    return replace(
        small_wrn_dense(seed),
        name="wrn-10-2-dense",
        epochs=20,
        decay_after=(6, 12, 16),
    )


def wide_wrn_low(seed: int = 0) -> Recipe:
    """Low compression of WRN-10-2 by strengths that fade."""
    strength = scaled(LOW, _LOW_FACTOR)
    return replace(wide_wrn_dense(seed), name="wrn-10-2-low", strength=strength)


def wide_wrn_high(seed: int = 0) -> Recipe:
    """High compression of WRN-10-2 by strengths that fade."""
    strength = scaled(HIGH, _HIGH_FACTOR)
    return replace(wide_wrn_dense(seed), name="wrn-10-2-high", strength=strength)


def scaled(strength: Mapping[str, float], factor: float) -> dict[str, float]:
    """The same proportions, so many times as strong.

    Examples:
        >>> scaled({"group1.*": 2e-5, "group3.*": 3e-4}, 2.0)
        {'group1.*': 4e-05, 'group3.*': 0.0006}
    """
    return {pattern: factor * value for pattern, value in strength.items()}


def wide_wrn_low_budget(seed: int = 0) -> Recipe:
    """The paper's low compression of WRN-10-2, asked for as a budget."""
    return replace(
        wide_wrn_dense(seed), name="wrn-10-2-low-budget", budget={"macs": 0.71}
    )


def wide_wrn_high_budget(seed: int = 0) -> Recipe:
    """The paper's high compression of WRN-10-2, asked for as a budget."""
    return replace(
        wide_wrn_dense(seed), name="wrn-10-2-high-budget", budget={"macs": 0.42}
    )


def wider_wrn_dense(seed: int = 0) -> Recipe:
    """WRN-10-4 as it is, trained as WRN-10-2 is."""
    return replace(wide_wrn_dense(seed), name="wrn-10-4-dense")


def wider_wrn_low_budget(seed: int = 0) -> Recipe:
    """The paper's low compression of WRN-10-4, asked for as a budget."""
    return replace(wide_wrn_low_budget(seed), name="wrn-10-4-low-budget")


def wider_wrn_high_budget(seed: int = 0) -> Recipe:
    """The paper's high compression of WRN-10-4, asked for as a budget."""
    return replace(wide_wrn_high_budget(seed), name="wrn-10-4-high-budget")


def wider_wrn_low_taught(seed: int = 0) -> Recipe:
    """Low compression of WRN-10-4 by a budget, with a teacher."""
    return replace(wider_wrn_low_budget(seed), name="wrn-10-4-low-taught")


def spare_wrn_dense(seed: int = 0) -> Recipe:
    """WRN-10-4 as it is, on few images; the learning rate falls as early as before."""
    return replace(
        wider_wrn_dense(seed),
        name="wrn-10-4-few-dense",
        epochs=40,
        decay_after=(12, 24, 32),
    )


def spare_wrn_low_budget(seed: int = 0) -> Recipe:
    """The paper's low compression of WRN-10-4 on few images, asked for as a budget."""
    return replace(
        spare_wrn_dense(seed), name="wrn-10-4-few-low-budget", budget={"macs": 0.71}
    )


def spare_wrn_high_budget(seed: int = 0) -> Recipe:
    """The paper's high compression of WRN-10-4 on few images, asked for as a budget."""
    return replace(
        spare_wrn_dense(seed), name="wrn-10-4-few-high-budget", budget={"macs": 0.42}
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

TASKS: Final[Mapping[str, tuple[MakeTask, MakeRecipe]]] = {
    "lenet5-sigmoid": (lenet5_mnist, table1_sigmoid),
    "lenet5-softmax": (lenet5_mnist, table1_softmax),
    "lenet5-sigmoid-fading": (lenet5_mnist_fading, table1_sigmoid_fading),
    "lenet5-sigmoid-held": (lenet5_mnist_held, table1_sigmoid_held),
    "lenet5-sigmoid-budget": (lenet5_mnist, table1_sigmoid_budget),
    "lenet5-sigmoid-taught": (lenet5_mnist_taught, table1_sigmoid_taught),
    "lenet5-softmax-held": (lenet5_mnist_held, table1_softmax_held),
    "lenet5-softmax-taught": (lenet5_mnist_taught, table1_softmax_taught),
    "lenet5-sigmoid-kept": (lenet5_mnist, table1_sigmoid_kept),
    "lenet5-dense": (lenet5_mnist, table1_dense),
    "frontier-teacher-normed": (teacher, table1_teacher),
    **{make(0).name: (lenet5_mnist_held_out, make) for make in TRIALS},
    "lenet5-digits": (lenet5_digits, digits_sigmoid),
    "wrn-28-10-low": (wrn_cifar10, wrn_low),
    "wrn-28-10-high": (wrn_cifar10, wrn_high),
    "wrn-10-1-low": (small_wrn_cifar10, small_wrn_low),
    "wrn-10-1-high": (small_wrn_cifar10, small_wrn_high),
    "wrn-10-1-dense": (small_wrn_cifar10, small_wrn_dense),
    "wrn-10-2-low": (wide_wrn_cifar10, wide_wrn_low),
    "wrn-10-2-high": (wide_wrn_cifar10, wide_wrn_high),
    "wrn-10-2-dense": (wide_wrn_cifar10, wide_wrn_dense),
    "wrn-10-2-low-budget": (wide_wrn_cifar10, wide_wrn_low_budget),
    "wrn-10-2-high-budget": (wide_wrn_cifar10, wide_wrn_high_budget),
    "wrn-10-4-dense": (wider_wrn_cifar10, wider_wrn_dense),
    "wrn-10-4-low-budget": (wider_wrn_cifar10, wider_wrn_low_budget),
    "wrn-10-4-high-budget": (wider_wrn_cifar10, wider_wrn_high_budget),
    "wrn-10-4-low-taught": (wider_wrn_taught, wider_wrn_low_taught),
    "wrn-10-4-few-dense": (spare_wrn_cifar10, spare_wrn_dense),
    "wrn-10-4-few-low-budget": (spare_wrn_cifar10, spare_wrn_low_budget),
    "wrn-10-4-few-high-budget": (spare_wrn_cifar10, spare_wrn_high_budget),
}
"""By the name of the recipe: what is trained, and how."""

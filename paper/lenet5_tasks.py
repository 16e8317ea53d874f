"""Tasks and recipes that come with diffprune: the paper's, and a short one."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import torch

from diffprune.lab.digits import load_digits
from diffprune.lab.image_batches import Batches, Split
from diffprune.lab.training.recipe import Recipe
from diffprune.lab.training.task import MakeTask, Task, gate_of
from paper import wide_resnet_tasks as wide
from paper.data.mnist import load_mnist
from paper.models.lenet5 import LeNet5

GATES: Final = ("gate_conv1", "gate_conv2", "gate_flat", "gate_fc1")
_EVALUATION_BATCH: Final = 1_000
_KEPT: Final = {"schedule": 10**9}
"""Removes nothing until the end."""

MakeRecipe = Callable[[int], Recipe]
"""From a seed to a recipe."""


def lenet5_mnist(recipe: Recipe) -> Task:
    """LeNet-5 on all 60,000 training images of MNIST, as the paper has it."""
    return _lenet5(load_mnist(), recipe)


def lenet5_mnist_validated(recipe: Recipe) -> Task:
    """LeNet-5 on 55,000 images of MNIST; 5,000 are held out, to choose with."""
    return _lenet5(load_mnist(validation=True), recipe)


def lenet5_digits(recipe: Recipe) -> Task:
    """LeNet-5 on the handwritten digits of scikit-learn."""
    return _lenet5(load_digits(), recipe)


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
        strength=dict(zip(GATES, (1e-5, 1e-5, 2e-5, 2e-5), strict=True)),
    )


def table1_sigmoid_kept(seed: int = 0) -> Recipe:
    """The same without live removal: closed units stay until the end."""
    return replace(table1_sigmoid(seed), name="lenet5-sigmoid-kept", pruner=_KEPT)


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
        pruner={"schedule": 24},
        seed=seed,
    )


BUILTIN: Final[Mapping[str, tuple[MakeTask, MakeRecipe]]] = {
    "lenet5-mnist": (lenet5_mnist, table1_sigmoid),
    "lenet5-mnist-softmax": (lenet5_mnist, table1_softmax),
    "lenet5-mnist-kept": (lenet5_mnist, table1_sigmoid_kept),
    "lenet5-digits": (lenet5_digits, digits_sigmoid),
    "wrn-28-10-low": (wide.wrn_cifar10, wide.wrn_low),
    "wrn-28-10-high": (wide.wrn_cifar10, wide.wrn_high),
    "wrn-10-1-dense": (wide.small_wrn_cifar10, wide.small_wrn_dense),
    "wrn-10-1-low": (wide.small_wrn_cifar10, wide.small_wrn_low),
    "wrn-10-1-high": (wide.small_wrn_cifar10, wide.small_wrn_high),
}
"""By name: the task, and the recipe it is trained with."""


def _lenet5(data: Split, recipe: Recipe) -> Task:
    held_out = data.validation
    return Task(
        model=_channels_last(LeNet5(gate_of(recipe))),
        train=Batches(data.train, recipe.batch_size, shuffle=True),
        validation=None if held_out is None else Batches(held_out, _EVALUATION_BATCH),
        test=Batches(data.test, _EVALUATION_BATCH),
    )


def _channels_last(model: LeNet5) -> LeNet5:
    """Pooling is faster that way."""
    return model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue] - torch's annotations lack it

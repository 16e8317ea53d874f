"""Wide ResNets as the paper trains them, and small ones: tasks and recipes.

The small ones are of the same family, with the same gates in the same places. Over a
run the penalty moves a logit by about 0.4 * strength * (sum of learning rates) / (1 -
momentum). At first the logits are 0.02 to 0.22 above their thresholds, and thirty
epochs have strengths of their own to get there.
"""

from dataclasses import replace
from functools import partial
from typing import Final

import torch
from torch.optim import SGD

from diffprune.lab import Recipe, Task
from diffprune.lab.image_batches import Batches, Split
from paper.data.cifar10 import augment, halved, load_cifar10, normalise
from paper.fading_strengths import fading_task
from paper.models.lenet5 import channels_last
from paper.models.wide_resnet import WideResNet
from paper.recipe_parts import papers_gate, scaled
from paper.teaching import taught

LOW: Final = {"group1.*": 1e-5, "group2.*": 1e-5, "group3.*": 5e-5}
HIGH: Final = {"group1.*": 2e-5, "group2.*": 7e-5, "group3.*": 3e-4}
"""The paper's strengths for WRN-28-10."""
_LOW_FACTOR: Final = 7.0
_HIGH_FACTOR: Final = 4.6
"""Factors on the paper's strengths; `python -m paper calibrate` shows the trials."""
_SMALL_LOW: Final = {"group1.*": 3e-5, "group2.*": 3e-5, "group3.*": 3e-5}
_SMALL_HIGH: Final = {"group1.*": 3e-5, "group2.*": 7e-5, "group3.*": 1e-4}

FADES, FADED = 0.3, 0.75
"""From when to when strengths of wide ResNets fade, in shares of the training."""

_FEW: Final = 15_000
"""Images of half the side that WRN-10-2 and WRN-10-4 learn from."""
_FEWER: Final = 5_000
"""A third of them: far fewer than WRN-10-4 has weights for."""


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

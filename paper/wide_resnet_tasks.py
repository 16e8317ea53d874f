"""Wide ResNets on CIFAR-10: the paper's, and one for a small machine; no loop.

The small one is of the same family, with the same gates in the same places. Over a run
the penalty moves a logit by about 0.4 * strength * (sum of learning rates) / (1 -
momentum). At first the logits are 0.02 to 0.22 above their thresholds, and thirty
epochs have strengths of their own to get there.
"""

from dataclasses import replace
from functools import partial
from typing import Final

from torch.optim import SGD

from diffprune.lab.image_batches import Batches, Split
from diffprune.lab.training.recipe import Recipe
from diffprune.lab.training.task import Task, gate_of
from paper.data.cifar10 import augment, load_cifar10, normalise
from paper.models.wide_resnet import WideResNet

_EVALUATION_BATCH: Final = 100
_LOW: Final = {"group1.*": 1e-5, "group2.*": 1e-5, "group3.*": 5e-5}
_HIGH: Final = {"group1.*": 2e-5, "group2.*": 7e-5, "group3.*": 3e-4}
_SMALL_LOW: Final = {"group1.*": 3e-5, "group2.*": 3e-5, "group3.*": 3e-5}
_SMALL_HIGH: Final = {"group1.*": 3e-5, "group2.*": 7e-5, "group3.*": 1e-4}


def wrn_cifar10(recipe: Recipe) -> Task:
    """WRN-28-10 on all 50,000 training images, mirrored and shifted at random."""
    return wide_resnet_task(WideResNet(28, 10, gate_of(recipe)), load_cifar10(), recipe)


def small_wrn_cifar10(recipe: Recipe) -> Task:
    """WRN-10-1 on 45,000 images, mirrored and shifted; 5,000 are to choose with."""
    data = load_cifar10(validation=True)
    return wide_resnet_task(WideResNet(10, 1, gate_of(recipe)), data, recipe)


def wide_resnet_task(model: WideResNet, data: Split, recipe: Recipe) -> Task:
    """A wide ResNet on images like those of CIFAR-10."""
    evaluated = partial(Batches, size=_EVALUATION_BATCH, transform=normalise)
    held_out = data.validation
    return Task(
        model=model,
        train=Batches(data.train, recipe.batch_size, shuffle=True, transform=augment),
        validation=None if held_out is None else evaluated(held_out),
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
        strength=_LOW,
        seed=seed,
    )


def wrn_high(seed: int = 0) -> Recipe:
    """Section 4.2, high compression: little accuracy is to be lost."""
    return replace(wrn_low(seed), name="wrn-28-10-high", strength=_HIGH)


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

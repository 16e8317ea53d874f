"""The four tasks: a network, its data and how it is trained. Scaled to one core.

Everything is chosen on held-out training images; the test images are looked at once for
each cell of the table.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.optim import SGD, Adam, AdamW, Optimizer

from benchmarks.choice.networks import Reader, ResNet, ViT
from diffprune.lab.image_batches import Examples
from paper.data.cifar10 import load_cifar10, normalise
from paper.data.mnist import load_mnist
from paper.models.lenet5 import LeNet5

BATCH: Final = 64
NUM_HELD_OUT: Final = 2_000
NUM_TEST: Final = 5_000
RATES: Final = (0.3, 1.0, 3.0)
"""Learning rates of the recovery, as parts of that of the pretraining."""

MakeOptimizer = Callable[[Iterable[Any], float], Optimizer]


@dataclass(frozen=True)
class Data:
    """Train on `train`, choose with `held_out`, report `test`."""

    train: Examples
    held_out: Examples
    test: Examples


@dataclass(frozen=True)
class Task:
    """A network and how it is trained.

    Attributes:
        name: Its name in records and tables.
        title: What it is, for readers.
        make: Makes the network, untrained.
        head: Name of its last layer, which keeps all units.
        data: Loads the data.
        is_shifted: Whether training images are mirrored and shifted.
        optimizer: Makes the optimizer.
        rate: Peak learning rate of the pretraining.
        epochs: Passes of the pretraining over `train`.
        targets: Parts of the multiply-adds to cut to.
        narrow: Makes it with a part of all widths, where cutting a part of every group
            does not come to the same: the stream of a transformer is no group.
    """

    name: str
    title: str
    make: Callable[[], nn.Module]
    head: str
    data: Callable[[], Data]
    is_shifted: bool
    optimizer: MakeOptimizer
    rate: float
    epochs: int
    targets: tuple[float, ...] = (0.5, 0.25, 0.1)
    narrow: Callable[[float], nn.Module] | None = None

    @property
    def examples(self) -> int:
        """Images that the pretraining passes through the network."""
        return self.steps * BATCH

    @property
    def steps(self) -> int:
        """Optimizer steps of the pretraining."""
        return self.epochs * len(self.data().train) // BATCH


@cache
def mnist() -> Data:
    """The first 4,000 training images of MNIST, and 2,000 others held out."""
    return _split(load_mnist().train, load_mnist().test, 4_000)


@cache
def cifar10() -> Data:
    """The first 5,000 training images of CIFAR-10, and 2,000 others held out."""
    split = load_cifar10()
    return _split(split.train, split.test, 5_000)


def _split(train: Examples, test: Examples, count: int) -> Data:
    held_out = torch.arange(count, count + NUM_HELD_OUT)
    parts = train.take(torch.arange(count)), train.take(held_out)
    return Data(*map(normal, (*parts, test.take(torch.arange(NUM_TEST)))))


def normal(examples: Examples) -> Examples:
    """Examples whose colours have mean zero and variance one; grey ones as they are."""
    if examples.images.shape[1] == 1:
        return examples
    return Examples(normalise(examples.images), examples.labels)


def batches(task: Task, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Training batches without end, the same ones for every method of a seed."""
    generator = torch.Generator().manual_seed(1_000 + seed)
    train = task.data().train
    while True:
        order = torch.randperm(len(train), generator=generator)
        for index in order[: len(order) // BATCH * BATCH].split(BATCH):
            images = train.images[index]
            if task.is_shifted:
                images = _shifted(images, generator)
            yield images, train.labels[index]


def _shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror every other image, and shift the whole batch by up to three pixels."""
    mirrored = torch.rand(len(images), 1, 1, 1, generator=generator) < 0.5
    images = images.flip(-1).where(mirrored, images)
    top, left = torch.randint(7, (2,), generator=generator).tolist()
    height, width = images.shape[-2:]
    return pad(images, [3] * 4)[..., top : top + height, left : left + width]


def calibration(task: Task, seed: int, count: int) -> list[tuple[Tensor, Tensor]]:
    """Training images as they are, in batches of 128: to measure and to fit with."""
    generator = torch.Generator().manual_seed(2_000 + seed)
    train = task.data().train
    order = torch.randperm(len(train), generator=generator)[:count]
    return [(train.images[i], train.labels[i]) for i in order.split(128)]


def _channels_last(make: Callable[[], nn.Module]) -> nn.Module:
    return make().to(memory_format=torch.channels_last)


def _narrow_vit(part: float) -> nn.Module:
    return ViT(4 * max(1, round(16 * part)), 4, max(1, round(128 * part)))


def adam(parameters: Iterable[Any], rate: float) -> Optimizer:
    """Adam as it comes."""
    return Adam(parameters, lr=rate)


def adamw(parameters: Iterable[Any], rate: float) -> Optimizer:
    """AdamW with the decay of vision transformers."""
    return AdamW(parameters, lr=rate, weight_decay=0.05)


def sgd(parameters: Iterable[Any], rate: float) -> Optimizer:
    """SGD with the momentum and decay of residual networks."""
    return SGD(parameters, lr=rate, momentum=0.9, nesterov=True, weight_decay=5e-4)


TASKS: Final = {
    task.name: task
    for task in (
        Task(
            "lenet5",
            "LeNet-5, MNIST, Adam",
            partial(_channels_last, LeNet5),
            "fc2",
            mnist,
            is_shifted=False,
            optimizer=adam,
            rate=1e-3,
            epochs=5,
            targets=(0.5, 0.25, 0.1, 0.05),
        ),
        Task(
            "resnet",
            "ResNet with batch norm, CIFAR-10, SGD",
            partial(_channels_last, ResNet),
            "head",
            cifar10,
            is_shifted=True,
            optimizer=sgd,
            rate=0.1,
            epochs=4,
        ),
        Task(
            "vit",
            "vision transformer, CIFAR-10, AdamW",
            ViT,
            "head",
            cifar10,
            is_shifted=True,
            optimizer=adamw,
            rate=2e-3,
            epochs=8,
            narrow=_narrow_vit,
        ),
        Task(
            "lstm",
            "two LSTMs reading rows of MNIST, Adam",
            Reader,
            "head",
            mnist,
            is_shifted=False,
            optimizer=adam,
            rate=3e-3,
            epochs=5,
        ),
    )
}

"""The data of a training step, as a ratio to the step itself; synthetic images.

They have the number and size of MNIST's and CIFAR-10's: shuffled and cut into batches
anew in every epoch, CIFAR-10's mirrored and shifted as well.
"""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Adam

from diffprune.lab.image_batches import Batches, Examples
from paper.data.cifar10 import augment
from paper.models.lenet5 import LeNet5
from paper.models.wide_resnet import WideResNet

from ._timing import Measurement, ratio

RECIPE = {"mnist_batch": 100, "cifar10_batch": 120, "optimizer": "Adam"}


def measure() -> tuple[Measurement, ...]:
    """Time a batch and a dense step in turns: LeNet-5, and the smallest wide ResNet."""
    torch.manual_seed(0)
    digits = Examples(torch.rand(60_000, 1, 28, 28), torch.arange(60_000) % 10)
    pictures = torch.randint(256, (50_000, 3, 32, 32), dtype=torch.uint8)
    photos = Examples(pictures, torch.arange(50_000) % 10)
    mnist = Batches(digits, RECIPE["mnist_batch"], shuffle=True)
    cifar = Batches(photos, RECIPE["cifar10_batch"], shuffle=True, transform=augment)
    return (
        _share(mnist, LeNet5(), "LeNet-5", rounds=200),
        _share(cifar, WideResNet(10, 1), "WRN-10-1", rounds=20),
    )


def _share(batches: Batches, model: nn.Module, name: str, rounds: int) -> Measurement:
    endless = _forever(batches)
    return ratio(
        lambda: next(endless),
        _step(model, *next(iter(batches))),
        names=(f"a batch for {name}", f"dense {name} step"),
        rounds=rounds,
        target=0.02,
    )


def _forever(batches: Batches) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        yield from batches


def _step(model: nn.Module, images: Tensor, labels: Tensor) -> Callable[[], None]:
    optimizer = Adam(model.parameters())

    def step() -> None:
        loss = cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step

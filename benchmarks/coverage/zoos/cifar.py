"""The CIFAR-10 networks of pytorchcv: one or two depths of every family."""

import functools
from collections.abc import Iterator

from pytorchcv.model_provider import get_model

from benchmarks.coverage.case import Case
from benchmarks.coverage.zoos.images import image

NAMES = [
    "nin",
    "resnet20",
    "resnet56",
    "resnet164bn",
    "preresnet20",
    "preresnet56",
    "preresnet164bn",
    "resnext20_16x4d",
    "resnext20_32x2d",
    "resnext29_32x4d",
    "seresnet20",
    "seresnet56",
    "seresnet164bn",
    "sepreresnet20",
    "sepreresnet56",
    "sepreresnet164bn",
    "pyramidnet110_a48",
    "pyramidnet164_a270_bn",
    "densenet40_k12",
    "densenet40_k12_bc",
    "densenet100_k12_bc",
    "xdensenet40_2_k24_bc",
    "wrn16_10",
    "wrn28_10",
    "wrn20_10_1bit",
    "wrn20_10_32bit",
    "ror3_56",
    "ror3_164",
    "rir",
    "shakeshakeresnet20_2x16d",
    "diaresnet20",
    "diapreresnet20",
    "fractalnet",
    "shakedropresnet20",
    "resdropresnet20",
    "msdnet22",
]


def cases() -> Iterator[Case]:
    """One case per name above."""
    for name in NAMES:
        build = functools.partial(get_model, f"{name}_cifar10", pretrained=False)
        yield Case("pytorchcv", f"{name}_cifar10", build, image(32))

"""How long `dp.shrink` takes for a ResNet-18: beside training it on as many images."""

import torch
from torch.nn.functional import cross_entropy

import diffprune as dp

from ._timing import Measurement, milliseconds
from .resnets import resnet18

RECIPE = {
    "what": "dp.shrink of a ResNet-18 with fresh weights to half of its multiply-adds, "
    "with its defaults, over a forward and a backward pass of 128 images; processor "
    "time, once each: two cores share it",
    "images": "512 of 3x32x32 or 3x224x224, in batches of 32",
}
_BATCH = 32


def _case(pixels: int) -> Measurement:
    torch.manual_seed(0)
    model = resnet18().eval()
    data = [
        (torch.randn(_BATCH, 3, pixels, pixels), torch.randint(1000, (_BATCH,)))
        for _ in range(512 // _BATCH)
    ]

    def train() -> None:
        for images, labels in data[:4]:
            cross_entropy(model(images), labels).backward()
        model.zero_grad()

    def shrink() -> None:
        dp.shrink(model, data, cross_entropy, dp.Budget(macs=0.5))

    found = milliseconds(shrink), milliseconds(train)
    ratio = found[0] / found[1]
    return Measurement(
        subject=f"dp.shrink, ResNet-18 at {pixels} pixels",
        reference="forward and backward of 128 images",
        subject_ms=found[0],
        reference_ms=found[1],
        ratio=ratio,
        spread=(ratio, ratio),
        undisturbed=ratio,
        rounds=1,
    )


def measure() -> tuple[Measurement, ...]:
    """Small images, then large ones."""
    torch.set_num_threads(1)
    dp.find_groups(torch.nn.Linear(2, 2), torch.rand(1, 2))  # imports once
    return _case(32), _case(224)

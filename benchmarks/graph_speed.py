"""Finding groups and removing units, as ratios to what a user would run anyway."""

import logging
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager

import numpy as np
import torch
from scipy.stats import linregress
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from diffprune._graph import find_groups
from diffprune._surgery import remove

from ._timing import Measurement, one_thread, ratio
from .resnets import BasicBlock, ResNet, resnet18, resnet50

RECIPE = {
    "batch_size": 32,
    "pixels_of_the_step": 112,
    "kept": "5 of 8 units of every group",
    "blocks_per_stage": (2, 8, 32, 124),
}


def measure() -> tuple[Measurement, ...]:
    """Group discovery, removal, growth with depth, and the speed of the result."""
    torch.manual_seed(0)
    with _quiet():
        return (
            _discovery(),
            _removal("2 images", torch.rand(2, 3, *_pixels())),
            _removal("the training batch", torch.rand(_batch(), 3, *_pixels())),
            *_growth(),
            _latency(),
        )


@contextmanager
def _quiet() -> Generator[None]:
    """Silence torch.export, which find_groups does too: logging costs it a tenth."""
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _batch() -> int:
    return RECIPE["batch_size"]


def _pixels() -> tuple[int, int]:
    return (RECIPE["pixels_of_the_step"],) * 2


def _discovery() -> Measurement:
    model, images = resnet50().eval(), torch.rand(2, 3, 224, 224)
    return ratio(
        lambda: find_groups(model, images),
        lambda: _export(model, images),
        names=("find_groups of ResNet-50", "torch.export of ResNet-50"),
        rounds=7,
        target=2.0,
    )


def _removal(verified_on: str, images: Tensor) -> Measurement:
    model = resnet50()
    masks = _masks(model)
    return ratio(
        lambda: remove(model, images, keep=masks),
        _training_step(resnet50()),
        names=(
            f"removal from ResNet-50, verified on {verified_on}",
            f"its training step, {_batch()} images of {_pixels()[0]} pixels",
        ),
        rounds=3,
        target=2.0,
    )


def _growth() -> tuple[Measurement, ...]:
    """The exponent e of CPU time ~ ops ** e, for discovery and torch.export alone."""
    images = torch.rand(2, 3, 32, 32)
    with one_thread():
        _times_of_depth(2, images)  # whatever torch does only once
        times = [
            _times_of_depth(blocks, images) for blocks in RECIPE["blocks_per_stage"]
        ]
    ops, *columns = zip(*times, strict=True)
    subjects = ("find_groups", "torch.export")
    return tuple(
        _exponent(subject, ops, column)
        for subject, column in zip(subjects, columns, strict=True)
    )


def _times_of_depth(blocks: int, images: Tensor) -> tuple[int, float, float]:
    model = ResNet(BasicBlock, (blocks,) * 4, width=8).eval()
    start = time.process_time()
    groups = find_groups(model, images)
    found = time.process_time()
    _export(model, images)
    return len(groups.solution.steps), found - start, time.process_time() - found


def _exponent(
    subject: str, ops: tuple[int, ...], seconds: tuple[float, ...]
) -> Measurement:
    line = linregress(np.log(ops), np.log(seconds))
    return Measurement(
        subject=f"{subject}: exponent of its time in the number of ops",
        reference=f"linear; from {ops[0]} to {ops[-1]} ops",
        subject_ms=1e3 * seconds[-1],
        reference_ms=1e3 * seconds[0],
        ratio=float(line.slope),
        spread=(line.slope - line.stderr, line.slope + line.stderr),
        undisturbed=float(line.slope),
        rounds=len(ops),
        target=1.0 if subject == "find_groups" else None,
    )


def _latency() -> Measurement:
    model, image = resnet18().eval(), torch.rand(1, 3, 224, 224)
    cut = remove(model, image, keep=_masks(model))
    by_hand = resnet18(width=40).eval()
    if str(cut) != str(by_hand):
        raise AssertionError("the two models compared must have the same widths")
    return ratio(
        torch.no_grad()(lambda: cut(image)),
        torch.no_grad()(lambda: by_hand(image)),
        names=("a cut ResNet-18, one image", "the same widths written by hand"),
        rounds=60,
        target=1.02,
    )


def _masks(model: nn.Module) -> dict[str, Tensor]:
    """Keep the first 5 of every 8 units; the smallest image will do to find groups."""
    groups = find_groups(model, torch.rand(2, 3, 32, 32))
    return {g.name: torch.arange(g.size) < g.size * 5 // 8 for g in groups}


def _training_step(model: nn.Module) -> Callable[[], None]:
    images = torch.rand(_batch(), 3, *_pixels())
    labels = torch.randint(1000, (_batch(),))
    optimizer = SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def _export(model: nn.Module, images: Tensor) -> object:
    with torch.no_grad():
        return torch.export.export(model, (images,), strict=False)

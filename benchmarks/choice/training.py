"""Train a plain network for a number of steps, and say how good one is."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

from benchmarks.choice.tasks import Task, batches
from benchmarks.coverage.macs import MacCounter
from diffprune.lab.image_batches import Batches, Examples

_WARM_UP = 0.05


@dataclass(frozen=True)
class Quality:
    """How good a network is: error in per cent, mean negative log-likelihood."""

    error: float
    loss: float


def train_(
    model: nn.Module,
    task: Task,
    seed: int,
    steps: int,
    rate: float,
    after_backward: Callable[[nn.Module], object] | None = None,
) -> None:
    """Train with a fresh optimizer: a short warm-up, then half a cosine to zero.

    Args:
        model: What to train.
        task: Its data and optimizer.
        seed: Of the order of the data.
        steps: How many.
        rate: Peak learning rate.
        after_backward: Called with the model before every step of the optimizer.
    """
    optimizer, stream = (
        task.optimizer(model.parameters(), rate),
        batches(task, seed),
    )
    model.train()
    for step in range(steps):
        images, labels = next(stream)
        for group in optimizer.param_groups:
            group["lr"] = rate * schedule(step, steps)
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        if after_backward is not None:
            after_backward(model)
        optimizer.step()
    model.eval()


def schedule(step: int, steps: int) -> float:
    """The part of the peak learning rate at a step.

    Examples:
        >>> [round(schedule(step, 100), 2) for step in (0, 4, 50, 99)]
        [0.2, 1.0, 0.5, 0.0]
    """
    warm = min(1.0, (step + 1) / max(1, _WARM_UP * steps))
    return warm * (1 + math.cos(math.pi * step / max(1, steps))) / 2


@torch.no_grad()
def quality(model: nn.Module, examples: Examples) -> Quality:
    """Judge a network in eval mode."""
    model.eval()
    scores = torch.cat([model(images) for images, _ in Batches(examples, 500)])
    wrong = (scores.argmax(1) != examples.labels).float().mean()
    return Quality(100 * float(wrong), float(cross_entropy(scores, examples.labels)))


@torch.no_grad()
def macs(model: nn.Module, image: Tensor) -> int:
    """Multiply-adds for one image, counted by torch while the network runs.

    Examples:
        >>> macs(nn.LSTM(3, 5), torch.zeros(2, 1, 3)) == 2 * 4 * 5 * (3 + 5)
        True
    """
    model.eval()
    # So recurrent networks and attention run as the products that are counted.
    with (
        warnings.catch_warnings(action="ignore"),  # of the next line, about GPUs
        torch.backends.mkldnn.flags(enabled=False),
        sdpa_kernel(SDPBackend.MATH),
        MacCounter() as counter,
    ):
        model(image)
    return sum(counter.calls)

"""Networks that a `Pruner` cuts while it trains them, to the same cost and compute."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

import diffprune as dp
from benchmarks.choice.ours import FORWARD
from benchmarks.choice.tasks import BATCH, Task, batches
from benchmarks.choice.training import macs, schedule
from diffprune._budget.controller import rounds
from diffprune._pruner.measuring import FITTING
from diffprune._pruner.refitting import pays

_LENGTH = 10_000


@dataclass(frozen=True)
class Trained:
    """A network that was cut while it was trained.

    Attributes:
        model: The network, plain.
        steps: Steps of the whole training.
        charged: What its refits cost, in images through the whole network.
        compute: What all steps and refits cost, as a part of the pretraining.
        seconds: Processor seconds.
    """

    model: nn.Module
    steps: int
    charged: float
    compute: float
    seconds: float


def train(
    whole: nn.Module,
    task: Task,
    seed: int,
    *,
    target: float,
    compute: float,
    rate: float,
    is_pretrained: bool,
) -> Trained:
    """Train with `Pruner(budget=...)` for so much compute.

    Args:
        whole: The pretrained network; only its costs count if training starts from
            scratch.
        task: The task.
        seed: Of fresh weights, and of the order of the data.
        target: Part of the multiply-adds that may be left.
        compute: As a part of the pretraining; the length follows from it.
        rate: Peak learning rate.
        is_pretrained: Whether to start from the pretrained network.
    """
    start = time.process_time()
    torch.manual_seed(seed)
    model = _fresh(whole, task, is_pretrained=is_pretrained)
    is_fitted = pays(model, is_trained=is_pretrained)
    charged = fitting(target, is_pretrained=is_pretrained) if is_fitted else 0.0
    images = compute * task.examples - charged
    steps = length(images / BATCH, target, is_pretrained=is_pretrained)
    image = task.data().train.images[:1]
    budget = dp.Budget(macs=target, steps=steps, pretrained=is_pretrained)
    small, spent = prune(model, task, seed, budget, rate)
    total = (spent + charged) / task.examples
    assert macs(small, image) <= macs(whole, image)  # noqa: S101 - it only shrinks
    return Trained(small, steps, charged, total, time.process_time() - start)


def fitting(target: float, *, is_pretrained: bool) -> float:
    """What the refits cost: inputs pass through the network before and after each cut.

    Examples:
        >>> round(fitting(0.1, is_pretrained=True), 1)
        93.9
        >>> round(fitting(0.1, is_pretrained=False), 1)
        537.3
    """
    number = len(
        rounds(dp.Budget(macs=target, steps=_LENGTH, pretrained=is_pretrained))
    )
    parts = [target ** (done / number) for done in range(number + 1)]
    return FITTING * FORWARD * sum(before + after for before, after in pairwise(parts))


def prune(
    model: nn.Module, task: Task, seed: int, budget: dp.Budget, rate: float
) -> tuple[nn.Module, float]:
    """Train a model to a budget; the small one, and what all steps cost.

    The cost is in images that pass forward and backward through the whole network.
    """
    steps = budget.needed_steps()
    pruner = dp.Pruner(model, task.data().train.images[:2], budget=budget)
    optimizer = task.optimizer(pruner.parameter_groups(lr=rate), rate)
    spent, part = 0.0, 1.0
    # Other data than in the pretraining comes first, the same for all methods.
    stream = batches(task, 100 + seed)
    model.train()
    for step in range(steps):
        spent += part * BATCH
        _set_rate(optimizer, rate * schedule(step, steps))
        if _step(model, pruner, optimizer, stream) is not None:
            part = pruner.shape().macs / pruner.dense.macs
    return pruner.finalize().eval(), spent


def length(dense_steps: float, target: float, *, is_pretrained: bool) -> int:
    """How many steps cost as much as so many steps of the whole network.

    Examples:
        >>> length(100, 0.1, is_pretrained=True)
        955
        >>> length(100, 0.1, is_pretrained=False)
        409
    """
    if is_pretrained:  # units leave once 256 examples have been seen
        first = FITTING / BATCH + 1
        return max(1, round(first + (dense_steps - first) / target))
    due = rounds(dp.Budget(macs=target, steps=_LENGTH))
    ends = [*due[1:], _LENGTH]
    cost = float(due[0])
    for number, (begin, end) in enumerate(zip(due, ends, strict=True), start=1):
        cost += (end - begin) * target ** (number / len(due))
    return max(1, round(dense_steps * _LENGTH / cost))


def _step(
    model: nn.Module,
    pruner: dp.Pruner[Any],
    optimizer: Optimizer,
    stream: Iterator[tuple[Tensor, Tensor]],
) -> object:
    images, labels = next(stream)
    optimizer.zero_grad()
    (cross_entropy(model(images), labels) + pruner.penalty()).backward()
    optimizer.step()
    return pruner.step(optimizer)


def _set_rate(optimizer: Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def _fresh(whole: nn.Module, task: Task, *, is_pretrained: bool) -> nn.Module:
    model = task.make()
    if is_pretrained:
        model.load_state_dict(whole.state_dict())
    # Torch crashes on strided 1x1 convolutions of few channels that lie last.
    return model.to(memory_format=torch.contiguous_format)

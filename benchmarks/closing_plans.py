"""When units should leave for a budget: four networks that the comparison lacks.

A budget closes units by a plan: at once, or in eight rounds up to some part of the
steps. Networks are trained from scratch and from a pretrained state, each plan once for
the same number of steps and once for the same compute, beside a network that has the
narrow widths from the start. `python -m benchmarks.closing_plans` trains what has no
record yet, about an hour of one core, and prints the means. Errors are those of 10,000
training images that no network learns from.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any, Final, final
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

import diffprune as dp
from benchmarks.choice import gated, ours, tasks, training
from benchmarks.choice.tasks import BATCH, Task, cifar10, mnist
from diffprune._budget import controller
from diffprune.lab.image_batches import Examples
from paper.data.cifar10 import load_cifar10
from paper.data.mnist import load_mnist

from ._command import command
from ._records import RESULTS
from ._run_record import RunRecord

TARGET: Final = 0.2
SEEDS: Final = (0, 1)
FIRST, ROUNDS = 0.1, 8
PLANS: Final = {"at once": 0.0, "by 0.3": 0.3, "by 0.5": 0.5, "by 0.8": 0.8}
"""By what part of the steps the last units have left."""

NARROW: Final = "narrow from the start"
_HELD_OUT: Final = torch.arange(7_000, 17_000)


class _Convolutions(nn.Module):
    """Five convolutions with batch norms, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        layers, inputs = list[nn.Module](), 3
        for width, stride in ((16, 2), (32, 1), (32, 2), (64, 1), (64, 2)):
            conv = nn.Conv2d(inputs, width, 3, stride, padding=1, bias=False)
            layers += [conv, nn.BatchNorm2d(width), nn.ReLU()]
            inputs = width
        self.body, self.head = nn.Sequential(*layers), nn.Linear(inputs, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images).mean((2, 3)))


@final
class _Block(nn.Module):
    """Two convolutions, each behind a norm, beside a short cut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.short = nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = relu(self.norm1(x))
        return self.conv2(relu(self.norm2(self.conv1(y)))) + self.short(y)


@final
class _Residual(nn.Module):
    """A residual network whose norms come first."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3, 2, padding=1, bias=False)
        self.blocks = nn.Sequential(
            _Block(12, 12, 1), _Block(12, 24, 2), _Block(24, 24, 1), _Block(24, 48, 2)
        )
        self.norm, self.head = nn.BatchNorm2d(48), nn.Linear(48, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = relu(self.norm(self.blocks(self.stem(images))))
        return self.head(x.mean((2, 3)))


class _Pooling(nn.Module):
    """Two convolutions without norms, and a hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(3, 24, 5, padding=2), nn.ReLU(), nn.MaxPool2d(4)),
            *(nn.Conv2d(24, 48, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(48 * 16, 128), nn.ReLU()),
        )
        self.head = nn.Linear(128, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images))


class _Perceptron(nn.Module):
    """Three hidden layers."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Linear(784, 256), nn.Linear(256, 128), nn.Linear(128, 64)]
        pairs = (module for layer in layers for module in (layer, nn.ReLU()))
        self.body, self.head = nn.Sequential(nn.Flatten(), *pairs), nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.body(images))


def make_task(name: str, make: Any, rate: float, **options: Any) -> Task:  # noqa: ANN401
    """A network with its data and optimizer; its last layer is `head`."""
    return Task(name, name, make, "head", rate=rate, **options)


_IMAGES: Final = {"data": cifar10, "is_shifted": True, "epochs": 4}
DIGITS: Final = {
    "data": mnist,
    "is_shifted": False,
    "epochs": 6,
    "optimizer": tasks.adam,
}
COLOUR: Final = {**_IMAGES, "optimizer": tasks.sgd}
NETWORKS: Final = {
    task.name: task
    for task in (
        make_task("convolutions, batch norm", _Convolutions, 0.1, **COLOUR),
        make_task("residual, norms first", _Residual, 0.1, **COLOUR),
        make_task(
            "convolutions, no norm", _Pooling, 2e-3, **_IMAGES, optimizer=tasks.adam
        ),
        make_task("perceptron", _Perceptron, 1e-3, **DIGITS),
    )
}


@dataclass(frozen=True, kw_only=True)
class Result:
    """One run.

    Attributes:
        network: Its name.
        seed: Of weights and data.
        start: `scratch`, or `pretrained`.
        equal: What it has in common with the others: `steps`, or `compute`.
        plan: When units leave.
        steps: Of the training.
        compute: Of the training, as a part of the pretraining.
        error: On held-out images, in per cent.
        loss: On held-out images.
    """

    network: str
    seed: int
    start: str
    equal: str
    plan: str
    steps: int
    compute: float
    error: float
    loss: float


Key = tuple[str, int, str, str, str]


def key(result: Result) -> Key:
    """What a run is about."""
    return result.network, result.seed, result.start, result.equal, result.plan


def wanted() -> Iterator[Key]:
    """All runs, the cheap ones first."""
    for equal in ("steps", "compute"):
        for seed in SEEDS:
            for network in NETWORKS:
                for start in ("scratch", "pretrained"):
                    plans = [*PLANS, NARROW] if start == "scratch" else [*PLANS]
                    yield from ((network, seed, start, equal, one) for one in plans)


def parts(plan: str) -> list[float]:
    """After which parts of the steps units leave.

    Examples:
        >>> [round(part, 2) for part in parts("by 0.8")]
        [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]
    """
    last = PLANS[plan]
    if not last:
        return [0.0]
    return [FIRST + (last - FIRST) * n / (ROUNDS - 1) for n in range(ROUNDS)]


def share(plan: str) -> float:
    """What a step costs on average, as a part of one of the whole network.

    Examples:
        >>> share("at once"), round(share("by 0.5"), 2)
        (0.2, 0.39)
    """
    if plan == NARROW:
        return TARGET
    due = parts(plan)
    cost = due[0]
    for number, (begin, end) in enumerate(zip(due, [*due[1:], 1.0], strict=True)):
        cost += (end - begin) * TARGET ** ((number + 1) / len(due))
    return cost


@cache
def _pretrained(task: Task, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = task.make()
    training.train_(model, task, seed, task.steps, task.rate)
    return model


@cache
def held_out(*, is_colour: bool) -> Examples:
    """Training images that no network learns from."""
    data = load_cifar10() if is_colour else load_mnist()
    return tasks.normal(data.train.take(_HELD_OUT))


def run(asked: Key) -> Result:
    """Train one network by one plan."""
    network, seed, start, equal, plan = asked
    task = NETWORKS[network]
    steps = task.steps if equal == "steps" else round(task.steps / share(plan))
    whole = _pretrained(task, seed)
    torch.manual_seed(seed)
    if plan == NARROW:
        model = ours.from_scratch(whole, task, seed, TARGET).model
        training.train_(model, task, 100 + seed, steps, task.rate)
        spent = steps * BATCH * TARGET
    else:
        model = task.make()
        if start == "pretrained":
            model.load_state_dict(whole.state_dict())
        model, spent = _pruned(model, task, seed, steps, plan, start)
    images = task.data().train.images
    found = training.quality(model, held_out(is_colour=images.shape[1] == 3))
    return Result(
        network=network,
        seed=seed,
        start=start,
        equal=equal,
        plan=plan,
        steps=steps,
        compute=round(spent / task.examples, 4),
        error=round(found.error, 2),
        loss=round(found.loss, 4),
    )


def _pruned(
    model: nn.Module, task: Task, seed: int, steps: int, plan: str, start: str
) -> tuple[nn.Module, float]:
    """What a pruner makes of a network by this plan."""
    is_at_once = plan == "at once"
    budget = dp.Budget(
        macs=TARGET, steps=steps, pretrained=is_at_once and start == "pretrained"
    )
    due = [max(controller.WINDOW, round(part * steps)) for part in parts(plan)]
    with patch.object(controller, "rounds", lambda _: due):
        return gated.prune(model, task, seed, budget, task.rate)


def means(found: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    """Errors of each network by plan; in brackets, what training cost."""
    rows = dict.fromkeys((r.start, r.equal, r.network) for r in found)
    for row in sorted(rows, reverse=True):
        runs = [r for r in found if (r.start, r.equal, r.network) == row]
        plans = (*PLANS, NARROW)
        yield *row, *(_cell([r for r in runs if r.plan == plan]) for plan in plans)


def _cell(runs: Sequence[Result]) -> str:
    if not runs:
        return ""
    error, compute = (fmean(getattr(r, n) for r in runs) for n in ("error", "compute"))
    return f"{error:.2f} ({compute:.2f})"


RUNS: Final = RunRecord(
    RESULTS / "closing_plans.json",
    "python -m benchmarks.closing_plans",
    {"macs": TARGET, "batch": BATCH, "held_out": len(_HELD_OUT)},
    Result,
    key,
    run,
)


def main() -> None:
    """Train what is missing, keep the record up to date, print the means."""
    RUNS.show(means(RUNS.completed(wanted())))


if __name__ == "__main__":
    command(__doc__).parse_args()
    main()

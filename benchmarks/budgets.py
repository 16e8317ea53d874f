"""Ask for budgets, see what comes: `python -m benchmarks.budgets`.

Short runs on small sets: the question is whether a budget is met, not how accurate a
network can be. Each run leaves a record under results/budgets/; runs that have one are
not repeated, so that the command can be interrupted. Names of networks restrict it to
these; with `--table` it only prints.
"""

import copy
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam, Optimizer

import diffprune as dp
from diffprune._costs.latency import measure_in_turns
from diffprune.lab.digits import load_digits
from diffprune.lab.image_batches import Batches, Examples
from paper.data.cifar10 import load_cifar10, normalise
from paper.data.mnist import load_mnist
from paper.models.lenet5 import LeNet5
from paper.models.wide_resnet import WideResNet

from ._command import command, one_of
from ._records import write

RESULTS = Path(__file__).parent.parent / "results" / "budgets"
NETWORKS = ("mlp-digits", "lenet5-mnist", "wrn10-cifar10")
BUDGETS = (0.9, 0.5, 0.2, 0.05, 0.02)
OPTIMIZERS: dict[str, Callable[[Any, float], Optimizer]] = {
    "adam": lambda groups, lr: Adam(groups, lr=lr),
    "sgd": lambda groups, lr: SGD(groups, lr=lr, momentum=0.9),
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """What is asked, of which network, trained how."""

    network: str
    cost: str
    asked: float
    epochs: int = 5
    optimizer: str = "adam"
    lr: float = 1e-3

    @property
    def path(self) -> Path:
        """Where its record is."""
        how = f"{self.optimizer}-{self.lr:g}-{self.epochs}"
        return RESULTS / self.network / f"{self.cost}-{self.asked:g}-{how}.json"


@dataclass(frozen=True)
class Problem:
    """A network and what it learns from."""

    make: Callable[[], nn.Module]
    train: Examples
    test: Examples
    batch: int = 64


def mlp() -> nn.Module:
    """Make a perceptron for 28-pixel images: 784-300-100-10."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU()
    ).append(nn.Linear(100, 10))


def problem(name: str) -> Problem:
    """Load the data that goes with a network."""
    if name == "mlp-digits":
        digits = load_digits()
        return Problem(mlp, digits.train, digits.test)
    if name == "lenet5-mnist":
        mnist = load_mnist()
        return Problem(
            lambda: LeNet5().to(memory_format=torch.channels_last),
            mnist.train,
            mnist.test,
        )
    cifar = load_cifar10()
    few = cifar.train.take(torch.arange(10_000))
    return Problem(lambda: WideResNet(10, 1), _normal(few), _normal(cifar.test))


def runs() -> Iterator[Run]:
    """Five budgets for each network, then one budget however it is trained."""
    for network in NETWORKS:
        for asked in BUDGETS:
            yield Run(network=network, cost="macs", asked=asked)
    for asked in BUDGETS:
        yield Run(network="mlp-digits", cost="parameters", asked=asked)
    for asked in (0.7, 0.4):
        yield Run(network="wrn10-cifar10", cost="latency", asked=asked)
    for epochs in (5, 40, 200):
        for optimizer, rates in {"adam": (3e-4, 3e-3), "sgd": (0.01, 0.1)}.items():
            for lr in rates:
                yield Run(
                    network="mlp-digits",
                    cost="macs",
                    asked=0.1,
                    epochs=epochs,
                    optimizer=optimizer,
                    lr=lr,
                )


def train(run: Run) -> dict[str, Any]:
    """Train once, with the loop of every user, and say what came of it."""
    torch.manual_seed(0)
    task = problem(run.network)
    batches = Batches(task.train, task.batch, shuffle=True)
    steps = run.epochs * len(batches)
    model, x = task.make(), task.test.images[:8]
    whole = copy.deepcopy(model)
    budget = dp.Budget(**{run.cost: run.asked}, steps=steps)
    pruner = dp.Pruner(model, x, budget=budget)
    optimizer = OPTIMIZERS[run.optimizer](pruner.parameter_groups(), run.lr)
    for _ in range(run.epochs):
        model.train()
        for images, labels in batches:
            for group in optimizer.param_groups:
                group["lr"] = (
                    run.lr * (1 + math.cos(math.pi * pruner.steps / steps)) / 2
                )
            optimizer.zero_grad()
            (cross_entropy(model(images), labels) + pruner.penalty()).backward()
            optimizer.step()
            pruner.step(optimizer)
    used = pruner.controller.used()[run.cost]
    widths = dict(pruner.shape().units)
    small = pruner.finalize().eval()
    now, then = measure_in_turns([small, whole], x)
    return {
        **asdict(run),
        "used": used,
        "steps": steps,
        "train_examples": len(task.train),
        "widths": widths,
        "measured_latency": now / then,
        "parameters": sum(p.numel() for p in small.parameters()),
        "test_accuracy": _accuracy(small, task.test),
    }


def table(title: str, rows: list[Run]) -> Table:
    """Show asked and got, a line for each run that has a record."""
    shown = Table(title=title)
    for name in ("network", "training", "asked", "got", "error %", "accuracy %"):
        shown.add_column(name, justify="right" if "%" in name else "left")
    for run in rows:
        if run.path.exists():
            record = json.loads(run.path.read_text())
            timed = f" ({record.get('measured_latency', 0):.2f} measured)"
            shown.add_row(
                run.network,
                f"{run.optimizer} {run.lr:g}, {run.epochs} epochs",
                f"{run.cost}={run.asked:g}",
                f"{run.asked * record['used']:.4f}{timed * (run.cost == 'latency')}",
                f"{100 * (record['used'] - 1):+.2f}",
                f"{100 * record['test_accuracy']:.1f}",
            )
    return shown


def main(networks: Sequence[str]) -> None:
    """Run what has no record yet of some networks, then print all records."""
    torch.set_num_threads(1)
    every = list(runs())
    for run in every:
        if not run.path.exists() and run.network in networks:
            print(run, flush=True)
            write(run.path, "python -m benchmarks.budgets", **train(run))
    usual = [run for run in every if run == Run(**_asked(run))]
    others = [run for run in every if run not in usual]
    console = Console(width=100)
    console.print(table("Budgets asked and got", usual))
    console.print(table("The same, however it is trained", others))


def _asked(run: Run) -> dict[str, Any]:
    return {"network": run.network, "cost": run.cost, "asked": run.asked}


def _normal(examples: Examples) -> Examples:
    return Examples(normalise(examples.images), examples.labels)


@torch.no_grad()
def _accuracy(model: nn.Module, examples: Examples) -> float:
    guesses: list[Tensor] = [
        model(images).argmax(1) for images, _ in Batches(examples, 250)
    ]
    return float((torch.cat(guesses) == examples.labels).float().mean())


if __name__ == "__main__":
    parser = command(__doc__)
    parser.add_argument(
        "networks", nargs="*", type=one_of(NETWORKS), metavar="NETWORK",
        help=f"train only: {', '.join(NETWORKS)}",
    )  # fmt: skip
    parser.add_argument("--table", action="store_true", help="train nothing")
    given = parser.parse_args()
    main(() if given.table else given.networks or NETWORKS)

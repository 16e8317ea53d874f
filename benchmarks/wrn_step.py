"""A training step of WRN-28-10 at full width, and at the widths the paper prints.

`python -m benchmarks.wrn_step` prints a table: the ratio of seconds beside the ratio of
multiply-adds. The figures are kept in results/wrn/step.json.

The narrow networks come about as in training: gates are closed until the printed number
is open, and closed units are removed. The paper does not say which units are open; here
they are the first ones. Gates and penalty are part of a narrow network's step; the full
network is the plain one.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from diffprune._pruner import Pruner
from diffprune.gates import Gate
from diffprune.gates.penalty import parameter_groups
from diffprune.lab.training.no_pruning import Unpruned
from paper.models.wide_resnet import WideResNet
from paper.tables.section42 import PRINTED

from ._records import write
from ._timing import milliseconds, one_thread

RECORD = Path(__file__).parent.parent / "results" / "wrn" / "step.json"
BATCH, ROUNDS = 8, 5
STRENGTH = 1e-5


@dataclass(frozen=True, kw_only=True)
class Network:
    """A network to be timed, and what it costs."""

    name: str
    parameters: int
    macs: int
    step: Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What a training step takes.

    Attributes:
        network: Its name.
        parameters: Gates aside.
        macs: Of a forward pass for one image.
        seconds: Of every round, on the processor, one thread.
    """

    network: str
    parameters: int
    macs: int
    seconds: Sequence[float]

    @property
    def median(self) -> float:
        """Seconds of a usual step."""
        return statistics.median(self.seconds)


def full(depth: int = 28, widen: int = 10, batch: int = BATCH) -> Network:
    """The plain network."""
    model = WideResNet(depth, widen)
    shape = Unpruned(model, _images(2)).dense
    return Network(
        name="full",
        parameters=shape.parameters,
        macs=shape.macs // 2,
        step=_step(model, lambda: torch.zeros(()), batch),
    )


def narrow(
    name: str,
    widths: Sequence[int],
    depth: int = 28,
    widen: int = 10,
    batch: int = BATCH,
) -> Network:
    """The network in which so many units of every gate are open, and no others left."""
    model = WideResNet(depth, widen, Gate)
    pruner = Pruner(model, _images(2), strength=STRENGTH)
    with torch.no_grad():
        for gate, width in zip(pruner.gates.values(), widths, strict=True):
            gate.logits[width:] = -5.0
    pruner.remove_closed_()
    shape = pruner.shape()
    return Network(
        name=name,
        parameters=shape.parameters,
        macs=shape.macs // 2,
        step=_step(pruner.model, pruner.penalty, batch),
    )


def measure(networks: Sequence[Network], rounds: int = ROUNDS) -> list[Timing]:
    """Time all networks in turns, so that a busy machine disturbs them alike."""
    with one_thread():
        for network in networks:
            network.step()
        table = [[milliseconds(n.step) / 1e3 for n in networks] for _ in range(rounds)]
    return [
        Timing(network=n.name, parameters=n.parameters, macs=n.macs, seconds=seconds)
        for n, seconds in zip(networks, zip(*table, strict=True), strict=True)
    ]


def show(timings: Sequence[Timing]) -> Table:
    """Times beside multiply-adds, as fractions of the full network."""
    table = Table("WRN-28-10", title=f"A training step, batch {BATCH}, one thread")
    for name in ("parameters", "MACs per image", "of full", "s per step", "of full"):
        table.add_column(name, justify="right")
    whole = timings[0]
    for t in timings:
        table.add_row(
            t.network,
            f"{t.parameters:,}",
            f"{t.macs:,}",
            f"{t.macs / whole.macs:.1%}",
            f"{t.median:.2f}",
            f"{t.median / whole.median:.1%}",
        )
    return table


def _images(count: int) -> Tensor:
    return torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def _step(
    model: nn.Module, penalty: Callable[[], Tensor], batch: int
) -> Callable[[], None]:
    images, labels = _images(batch), torch.arange(batch) % 10
    optimizer = SGD(
        parameter_groups(model, lr=0.1, weight_decay=5e-4), momentum=0.9, nesterov=True
    )

    def step() -> None:
        loss = cross_entropy(model.train()(images), labels) + penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _networks() -> Iterator[Network]:
    torch.manual_seed(0)
    yield full()
    for name, groups in PRINTED.items():
        yield narrow(name, list(chain.from_iterable(chain.from_iterable(groups))))


def main() -> None:
    """Measure, write the record, print the table."""
    timings = measure(list(_networks()))
    write(
        RECORD,
        "python -m benchmarks.wrn_step",
        batch=BATCH,
        timings=[asdict(timing) for timing in timings],
    )
    Console().print(show(timings))


if __name__ == "__main__":
    main()

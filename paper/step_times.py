"""What a training step of a wide ResNet takes, at full width and as it shrinks.

`python -m paper steps wrn-28-10` times the paper's network at full width and at the
widths the paper prints; `python -m paper steps wrn-10-2` builds the networks that the
epochs of small runs left, and times a step of each in turns with the original's. Runs
time themselves too, but with whatever else the machine did in those hours.

The narrow networks come about as in training: gates are closed until the printed number
is open, and closed units are removed. The paper does not say which units are open; here
they are the first ones. Gates and penalty are part of a narrow network's step; the full
network is the plain one.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import torch
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torch.utils.flop_counter import FlopCounterMode

import diffprune as dp
from diffprune._core.interleaved import one_thread
from diffprune.gates import named_gates
from diffprune.lab import Epoch, Run
from paper.models.wide_resnet import WideResNet
from paper.tables.wide_resnet_table import PRINTED, SmallNetwork

BATCH, ROUNDS, SIDE = 8, 5, 32
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


@dataclass(frozen=True, kw_only=True)
class EpochTiming:
    """What a training step takes in the network that an epoch left.

    Attributes:
        run: The name of its recipe.
        epoch: After so many.
        macs: Of a forward pass for one image.
        seconds: Of a training step, on the processor, one thread.
        original: Seconds of the original's, in the same minute.
    """

    run: str
    epoch: int
    macs: int
    seconds: float
    original: float


def full(
    depth: int = 28, widen: int = 10, batch: int = BATCH, side: int = SIDE
) -> Network:
    """Return the plain network."""
    model = WideResNet(depth, widen)
    return _network("full", model, lambda: torch.zeros(()), (batch, side))


def narrow(
    name: str,
    widths: Sequence[int],
    depth: int = 28,
    widen: int = 10,
    batch: int = BATCH,
    side: int = SIDE,
) -> Network:
    """Return the network in which so many units of every gate are left."""
    model = WideResNet(depth, widen, dp.Gate)
    pruner = dp.Pruner(model, _images(2, side), strength=STRENGTH)
    with torch.no_grad():
        gates = named_gates(model, dp.Gate).values()
        for gate, width in zip(gates, widths, strict=True):
            gate.logits[width:] = -5.0
    pruner.remove_closed_()
    return _network(name, pruner.model, pruner.penalty, (batch, side))


def measure(networks: Sequence[Network], rounds: int = ROUNDS) -> list[Timing]:
    """Time all networks in turns, so that a busy machine disturbs them alike."""
    with one_thread():
        for network in networks:
            network.step()
        table = [[_seconds(n.step) for n in networks] for _ in range(rounds)]
    return [
        Timing(network=n.name, parameters=n.parameters, macs=n.macs, seconds=seconds)
        for n, seconds in zip(networks, zip(*table, strict=True), strict=True)
    ]


def measure_paper() -> dict[str, Any]:
    """Time the paper's network at full width and at both printed sets of widths."""
    torch.manual_seed(0)
    timings = measure(list(_paper_networks()))
    return {"batch": BATCH, "results": [asdict(timing) for timing in timings]}


def measure_epoch(small: SmallNetwork, run: Run, epoch: Epoch) -> EpochTiming:
    """Time the network with as many units as are connected at the end of an epoch."""
    size = (10, small.widen, run.recipe.batch_size, small.side)
    widths = list(epoch.effective.values())
    whole, left = measure([full(*size), narrow("left", widths, *size)])
    return EpochTiming(
        run=run.recipe.name,
        epoch=epoch.number,
        macs=left.macs,
        seconds=left.median,
        original=whole.median,
    )


def measure_epochs(small: SmallNetwork, runs: Sequence[Run]) -> dict[str, Any]:
    """Time what the epochs of gated runs of seed 0 left; each shape is timed once."""
    torch.manual_seed(0)
    found = [
        measure_epoch(small, run, epoch)
        for run in runs
        if run.recipe.seed == 0 and not run.is_dense
        for epoch in run.epochs
        if _is_new_shape(run, epoch)
    ]
    return {"results": [asdict(timing) for timing in found]}


def _is_new_shape(run: Run, epoch: Epoch) -> bool:
    before = [one for one in run.epochs if one.number == epoch.number - 1]
    return not before or before[0].effective != epoch.effective


def paper_table(timings: Sequence[Timing]) -> Table:
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


def epochs_table(timings: Sequence[EpochTiming]) -> Table:
    """Show a row for every epoch."""
    table = Table("run", "epoch")
    for name in ("MACs per image", "ms per step", "original", "share"):
        table.add_column(name, justify="right")
    for t in timings:
        table.add_row(
            t.run,
            str(t.epoch),
            f"{t.macs:,}",
            f"{1e3 * t.seconds:.0f}",
            f"{1e3 * t.original:.0f}",
            f"{t.seconds / t.original:.1%}",
        )
    return table


def _network(
    name: str,
    model: nn.Module,
    penalty: Callable[[], Tensor],
    images: tuple[int, int],
) -> Network:
    gates = {
        p for m in model.modules() if isinstance(m, dp.Gate) for p in m.parameters()
    }
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.eval()(_images(1, images[1]))
    return Network(
        name=name,
        parameters=sum(p.numel() for p in model.parameters() if p not in gates),
        macs=counter.get_total_flops() // 2,
        step=_step(model, penalty, *images),
    )


def _images(count: int, side: int) -> Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(0))


def _step(
    model: nn.Module, penalty: Callable[[], Tensor], batch: int, side: int
) -> Callable[[], None]:
    images, labels = _images(batch, side), torch.arange(batch) % 10
    groups = dp.parameter_groups(model, lr=0.1, weight_decay=5e-4)
    optimizer = SGD(groups, momentum=0.9, nesterov=True)

    def step() -> None:
        loss = cross_entropy(model.train()(images), labels) + penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _seconds(step: Callable[[], None]) -> float:
    """Time on the processor: on one thread that is the time of an idle machine."""
    start = time.process_time()
    step()
    return time.process_time() - start


def _paper_networks() -> Iterator[Network]:
    yield full()
    for name, groups in PRINTED.items():
        yield narrow(name, list(chain.from_iterable(chain.from_iterable(groups))))

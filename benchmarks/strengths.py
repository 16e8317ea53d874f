"""What strength and the gates' learning rate do: a perceptron on handwritten digits.

`python -m benchmarks.strengths` trains all combinations, a minute or two on one core,
and prints the table; `--table` prints what is recorded. Errors are those of digits that
were held out for choosing.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from rich.console import Console
from rich.table import Table
from torch import nn, optim
from torch.nn.functional import cross_entropy

import diffprune as dp
from diffprune._core.interleaved import one_thread
from diffprune.lab.digits import load_digits
from paper.records import read_results

from ._command import command
from ._records import RESULTS, write

RECORD: Final = RESULTS / "strengths.json"
COMMAND: Final = "python -m benchmarks.strengths"
STEPS: Final = 600
BATCH: Final = 50
SEED: Final = 0
STRENGTHS: Final = (0.0, 1e-5, 1e-4, 1e-3)
FASTER: Final = (0.1, 1.0, 10.0)
OPTIMIZERS: Final[dict[str, tuple[Callable[..., optim.Optimizer], float]]] = {
    "Adam": (optim.Adam, 2e-3),
    "SGD": (partial(optim.SGD, momentum=0.9), 0.05),
}


@dataclass(frozen=True, kw_only=True)
class Result:
    """One run.

    Attributes:
        optimizer: Its name.
        lr: Learning rate of the weights.
        faster: Learning rate of the gates, over that of the weights.
        strength: Of all gates; None for the network without gates.
        units: Left of 64 and 64.
        error: Of held-out digits, in percent.
    """

    optimizer: str
    lr: float
    faster: float
    strength: float | None
    units: tuple[int, int]
    error: float


def run(name: str, strength: float | None, faster: float) -> Result:
    """Train once."""
    torch.manual_seed(SEED)
    data = load_digits()
    assert data.validation is not None  # noqa: S101 - the digits have one
    images, labels = data.train.images, data.train.labels
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(images[0].numel(), 64),
        *(nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)),
    )
    make, lr = OPTIMIZERS[name]
    pruner = None
    if strength is not None:
        pruner = dp.Pruner(model, images[:4], strength=strength, remove_every=50)
    groups: Any = (
        model.parameters()
        if pruner is None
        else pruner.parameter_groups(lr=lr, gate_lr=faster * lr)
    )
    optimizer = make(groups, lr=lr)
    for _ in range(STEPS):
        batch = torch.randint(len(images), (BATCH,))
        loss = cross_entropy(model(images[batch]), labels[batch])
        loss = loss if pruner is None else loss + pruner.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if pruner is not None:
            pruner.step(optimizer)
    small = model if pruner is None else pruner.finalize()
    held_out = data.validation
    wrong = small.eval()(held_out.images).argmax(1) != held_out.labels
    linear = [layer for layer in small if isinstance(layer, nn.Linear)]
    return Result(
        optimizer=name,
        lr=lr,
        faster=faster,
        strength=strength,
        units=(linear[0].out_features, linear[1].out_features),
        error=100 * float(wrong.float().mean()),
    )


def measure() -> list[Result]:
    """Train all combinations on one thread."""
    with one_thread():
        dense = [run(name, None, 1.0) for name in OPTIMIZERS]
        return dense + [
            run(name, strength, faster)
            for name in OPTIMIZERS
            for strength in STRENGTHS
            for faster in FASTER
        ]


def table(results: Sequence[Result]) -> Table:
    """A row for every optimizer and strength, a column for every pace of the gates."""
    shown = Table("optimizer", "strength")
    for faster in FASTER:
        shown.add_column(f"gate_lr = {faster:g} lr", justify="right")
    for name in OPTIMIZERS:
        for strength in (None, *STRENGTHS):
            cells = [
                f"{r.units[0]}, {r.units[1]}: {r.error:.1f} %"
                for r in results
                if r.optimizer == name and r.strength == strength
            ]
            label = "no gates" if strength is None else f"{strength:g}"
            shown.add_row(name, label, *cells)
    return shown


def read(path: Path = RECORD) -> list[Result]:
    """What is recorded."""
    found = read_results(path, COMMAND, Result)
    return [replace(one, units=(one.units[0], one.units[1])) for one in found]


def main(*, trains: bool) -> None:
    """Train all and print, or print what is recorded."""
    if trains:
        write(
            RECORD,
            COMMAND,
            recipe={"steps": STEPS, "batch": BATCH, "seed": SEED, "threads": 1},
            results=[asdict(result) for result in measure()],
        )
    Console().print(table(read()), f"Record: {RECORD}")


if __name__ == "__main__":
    parser = command(__doc__)
    parser.add_argument("--table", action="store_true", help="train nothing")
    main(trains=not parser.parse_args().table)

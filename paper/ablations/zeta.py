"""What the constraint zeta >= 0 is worth: LeNet-5 on digits, with it and without.

`python -m paper ablation zeta` prints the table. The paper asks for the constraint and
does not say how it is kept; here it is a mirror, which is replaced by nothing for the
comparison.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import torch
from rich.table import Table

from diffprune._core.interleaved import one_thread
from diffprune.gates import Gate
from diffprune.gates.penalty import named_gates
from diffprune.lab import Epoch, Recipe, Task, read_run, train
from diffprune.lab.formatting import architecture
from paper.lenet5_recipes import digits_sigmoid, lenet5_digits

SEEDS = range(3)


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a run ended.

    Attributes:
        constrained: Whether zeta was kept from falling below zero.
        seed: Of the run.
        raw: Open units of every gate.
        validation_error: In percent.
        test_error: In percent.
        zeta: Of every gate, after the last epoch.
        largest: Value of an open gate.
        smallest: Value of an open gate; below zero it turns its unit's sign.
    """

    constrained: bool
    seed: int
    raw: dict[str, int]
    validation_error: float | None
    test_error: float
    zeta: dict[str, float]
    largest: float
    smallest: float


def run(seed: int, *, constrained: bool) -> Result:
    """Train once."""
    made: list[Task] = []
    state: dict[str, tuple[float, list[float]]] = {}

    def task(recipe: Recipe) -> Task:
        made.append(lenet5_digits(recipe))
        return made[0]

    def note(_: Epoch) -> None:
        gates = named_gates(made[0].model, Gate)
        state.update({name: _look(gate) for name, gate in gates.items()})

    mirror = mock.patch("diffprune.gates.functional.reflect", lambda raw: raw)
    with tempfile.TemporaryDirectory() as out:
        if constrained:
            train(task, digits_sigmoid(seed), out=out, on_epoch=note)
        else:
            with mirror:
                train(task, digits_sigmoid(seed), out=out, on_epoch=note)
        last = read_run(Path(out)).epochs[-1]
    values = [value for _, found in state.values() for value in found]
    return Result(
        constrained=constrained,
        seed=seed,
        raw=dict(last.raw),
        validation_error=last.validation_error,
        test_error=last.test_error,
        zeta={name: zeta for name, (zeta, _) in state.items()},
        largest=max(values),
        smallest=min(values),
    )


@torch.no_grad()
def _look(gate: Gate) -> tuple[float, list[float]]:
    training, values = gate.training, gate.eval().values()
    gate.train(training)
    return round(float(gate.sharpness), 4), values[gate.is_open()].tolist()


def table(results: Sequence[Result]) -> Table:
    """A row for every run."""
    shown = Table("zeta", "seed", "open gates")
    for name in ("validation %", "test %", "zeta", "open values"):
        shown.add_column(name, justify="right")
    for r in results:
        shown.add_row(
            "at least 0" if r.constrained else "free",
            str(r.seed),
            architecture(r.raw),
            f"{r.validation_error:.2f}",
            f"{r.test_error:.2f}",
            ", ".join(f"{zeta:.2f}" for zeta in r.zeta.values()),
            f"{r.smallest:.2f} to {r.largest:.2f}",
        )
    return shown


def measure() -> list[Result]:
    """Run everything, for minutes, on one thread."""
    with one_thread():
        return [run(seed, constrained=c) for seed in SEEDS for c in (True, False)]

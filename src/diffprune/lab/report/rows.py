"""Turn the records of runs into rows, which plots and tables are made of.

A *row* is a flat mapping, ready for JSON.
"""

import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from diffprune.lab.formatting import short, spell_widths
from diffprune.lab.report.networks import Network
from diffprune.lab.runs.records import Epoch, Run, Widths

Row = Mapping[str, Any]
BINS: Final = 40
"""Of a histogram of open probabilities."""
MAX_COLUMNS: Final = 50
"""Epochs that the histograms of one run show at most."""
MAX_GATES: Final = 12
"""Gates that have histograms; of more, the widest ones do."""


def epoch_rows(runs: Sequence[Run]) -> list[Row]:
    """One row per run and epoch: errors, costs, pace in the words of `pace_title`."""
    pace = _pace(runs)
    return [
        {
            "run": run.name,
            "index": index,
            "epoch": epoch.number,
            "test": epoch.test_error,
            "train": epoch.train_error,
            "validation": epoch.validation_error,
            "parameters": epoch.parameters,
            "macs": epoch.macs,
            "pace": pace.time(epoch),
            "says": _says(run.name, epoch),
        }
        for index, run in enumerate(runs)
        for epoch in run.epochs
    ]


def pace_title(runs: Sequence[Run]) -> str:
    """What the seconds of `epoch_rows` are."""
    return _pace(runs).title


def width_rows(runs: Iterable[Run], dense: Widths) -> list[Row]:
    """One row per run, epoch and gate: units that are left, and their share."""
    return [
        {
            "run": run.name,
            "epoch": epoch.number,
            "gate": gate,
            "index": list(dense).index(gate),
            "units": units,
            "share": round(units / dense[gate], 4),
        }
        for run in runs
        for epoch in run.epochs
        for gate, units in epoch.effective.items()
    ]


def architecture_rows(
    networks: Iterable[Network], dense: Widths, *, at_start: str
) -> list[Row]:
    """Two rows per network and gate, before and after, as bars around a middle.

    A bar is as long as the square root of its units, so that 20 filters and 800
    features can be seen in one picture.
    """
    return [
        {
            "run": network.name,
            "gate": gate,
            "state": state,
            "units": units,
            "left": -(units**0.5) / 2,
            "right": units**0.5 / 2,
            "label": f"{dense[gate]} → {after}",
        }
        for network in networks
        for gate, after in network.widths.items()
        for state, units in ((at_start, dense[gate]), ("after", after))
    ]


def gate_rows(runs: Iterable[Run], gates: Collection[str]) -> list[Row]:
    """Histograms of open probabilities, by run, gate and epoch; empty bins left out.

    A row is short, as there are many: what follows from it is left to the plot.
    """
    return [
        {
            "run": run.name,
            "gate": gate,
            "epoch": epoch.number,
            "epochs": stride,
            "bin": bin_,
            "count": count,
        }
        for run in runs
        for stride, epoch in _columns(run)
        for gate, probabilities in epoch.prob_open.items()
        if gate in gates
        for bin_, count in _counts(probabilities)
    ]


def probability_rows(runs: Iterable[Run], gate: str) -> list[Row]:
    """What the open probabilities of one gate are between, by run and epoch."""
    return [
        {
            "run": run.name,
            "epoch": epoch.number,
            "units": len(probabilities),
            "lowest": min(probabilities),
            "median": statistics.median(probabilities),
            "highest": max(probabilities),
        }
        for run in runs
        for _, epoch in _columns(run)
        if (probabilities := epoch.prob_open.get(gate))
    ]


def widest(dense: Widths) -> list[str]:
    """The gates whose probabilities are worth a plot, in the order of the model."""
    largest = sorted(dense, key=lambda gate: -dense[gate])[:MAX_GATES]
    return [gate for gate in dense if gate in largest]


def first_widths(runs: Iterable[Run]) -> dict[str, int]:
    """The widths of the first epoch, for when those before it are not known."""
    widths: dict[str, int] = {}
    for run in runs:
        for gate, units in run.epochs[0].effective.items():
            widths[gate] = max(units, widths.get(gate, 0))
    return widths


class _Pace(NamedTuple):
    title: str
    time: Callable[[Epoch], float]


def _pace(runs: Sequence[Run]) -> _Pace:
    """The best measure of speed that all runs have on record.

    Processor time tells more than the clock on the wall, where a machine is shared.
    """
    epochs = [epoch for run in runs for epoch in run.epochs]
    if not all(epoch.steps for epoch in epochs):
        return _Pace("Time per epoch, s", lambda e: e.seconds)
    if not all(epoch.processor_seconds for epoch in epochs):
        return _Pace("Time per step, ms", lambda e: 1e3 * e.seconds / e.steps)
    return _Pace(
        "Processor time per step, ms", lambda e: 1e3 * e.processor_seconds / e.steps
    )


def _says(name: str, epoch: Epoch) -> str:
    widths = f"{spell_widths(epoch.effective)}, " if epoch.effective else ""
    return f"{name}: {epoch.test_error:.2f} % error, {widths}{short(epoch.macs)} MACs"


def _columns(run: Run) -> Iterator[tuple[int, Epoch]]:
    """Epochs as far as they can be seen, with how many each one stands for."""
    epochs = run.epochs
    stride = -(-len(epochs) // MAX_COLUMNS)
    for epoch in epochs[::stride]:
        yield stride, epoch


def _counts(probabilities: Sequence[float]) -> Iterator[tuple[int, int]]:
    bins = [min(int(p * BINS), BINS - 1) for p in probabilities]
    for bin_ in sorted(set(bins)):
        yield bin_, bins.count(bin_)

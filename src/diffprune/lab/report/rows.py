"""Turn the records of runs into rows, which plots and tables are made of.

A *row* is a flat mapping, ready for JSON.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from diffprune.lab.formatting import percent, short, spell_widths
from diffprune.lab.report.diagram import Block, units_by_layer
from diffprune.lab.report.networks import LayerCost, Network
from diffprune.lab.runs.records import Epoch, Run, Widths

Row = Mapping[str, Any]
BINS: Final = 40
"""Of a histogram of open probabilities."""
MAX_COLUMNS: Final = 50
"""Epochs that the histograms of one run show at most."""
MAX_GATES: Final = 12
"""Gates that have histograms; of more, the widest ones do."""
STATES: Final = ("before", "after")
_BLOCK_WIDTH: Final = 0.7
"""Of the longest bar, where lanes are one apart."""
_BOW: Final = 0.46
"""How far to the left a line goes around blocks of its own lane."""


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


def block_rows(
    dense: Sequence[Block], small: Mapping[str, Sequence[Block]]
) -> list[Row]:
    """One row per run and block of a network, before and after.

    A bar is as long as the square root of its units, as a share of the longest one.

    Args:
        dense: The network before.
        small: What runs have made of it, by run; a layer that is gone has no units.
    """
    layers = units_by_layer(dense)
    longest = max(layers.values(), default=1) ** 0.5 / _BLOCK_WIDTH
    return [
        {
            "run": run,
            "name": block.name,
            "row": block.row,
            "lane": block.lane,
            "before": block.units,
            "after": after,
            "label": block.name if after is None else f"{block.units} → {after}",
            "old": (block.units or 0) ** 0.5 / longest / 2,
            "new": (after or 0) ** 0.5 / longest / 2,
        }
        for run, blocks in small.items()
        for block, after in _paired(dense, units_by_layer(blocks))
    ]


def edge_rows(blocks: Sequence[Block]) -> list[Row]:
    """Four points for each line from a block to one that reads it."""
    return [
        {"edge": f"{source}-{number}", "order": order, "x": x, "y": y}
        for number, block in enumerate(blocks)
        for source in block.sources
        for order, (x, y) in enumerate(_bent(blocks[source], block))
    ]


def share_rows(costs: Mapping[str, Sequence[LayerCost]]) -> list[Row]:
    """Two rows per run, layer and cost: shares of the whole network before pruning."""
    return [
        {
            "run": run,
            "cost": cost,
            "layer": layer.name,
            "state": state,
            "count": number,
            "share": number / whole,
            "label": " → ".join(percent(n / whole) for n in getattr(layer, cost)),
        }
        for run, layers in costs.items()
        for cost in ("macs", "parameters")
        if (whole := sum(getattr(layer, cost)[0] for layer in layers))
        for layer in layers
        if any(getattr(layer, cost))
        for state, number in zip(STATES, getattr(layer, cost), strict=True)
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


def _paired(
    dense: Sequence[Block], after: Mapping[tuple[str, int], int]
) -> Iterator[tuple[Block, int | None]]:
    """Every block with the units that are left; None where branches meet."""
    runs = Counter[str]()
    for block in dense:
        key = block.name, runs[block.name]
        runs[block.name] += block.units is not None
        yield block, None if block.units is None else after.get(key, 0)


def _bent(source: Block, target: Block) -> Iterator[tuple[float, float]]:
    """From one block down to another, around what is between them."""
    goes_around = source.lane == target.lane and target.row - source.row > 1
    aside = -_BOW if goes_around else 0.0
    yield source.lane, source.row
    yield source.lane + aside, source.row + 0.6
    yield (target.lane if goes_around else source.lane) + aside, target.row - 0.6
    yield target.lane, target.row


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

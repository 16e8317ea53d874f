"""Records as rows, which plots and tables are made of; draws nothing.

A *row* is a flat mapping, ready for JSON.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from diffprune.experiment.records import Epoch, Widths
from diffprune.experiment.view import architecture, short
from diffprune.recipes.counting import Widths as LeNetWidths
from diffprune.report.networks import Network
from diffprune.report.published import EVIDENCE, Published
from diffprune.report.sources import Source

Row = Mapping[str, Any]
BINS: Final = 20
"""Of a histogram of open probabilities."""
MAX_COLUMNS: Final = 60
"""Epochs that the histograms of one run show at most."""


def epoch_rows(sources: Iterable[Source], steps: int | None) -> list[Row]:
    """One row per run and epoch: errors, costs, pace.

    Args:
        sources: The runs.
        steps: In an epoch, if known; seconds are then those of a step.
    """
    return [
        {
            "run": source.name,
            "epoch": epoch.number,
            "test": epoch.test_error,
            "train": epoch.train_error,
            "validation": epoch.validation_error,
            "parameters": epoch.parameters,
            "macs": epoch.macs,
            "seconds": epoch.seconds / (steps or 1),
            "says": _says(source.name, epoch),
        }
        for source in sources
        for epoch in source.run.epochs
    ]


def width_rows(sources: Iterable[Source], dense: Widths) -> list[Row]:
    """One row per run, epoch and gate: units that are left, and their share."""
    return [
        {
            "run": source.name,
            "epoch": epoch.number,
            "gate": gate,
            "units": units,
            "share": units / dense[gate],
        }
        for source in sources
        for epoch in source.run.epochs
        for gate, units in epoch.effective.items()
    ]


def architecture_rows(
    networks: Iterable[Network], dense: Widths, *, at_start: str
) -> list[Row]:
    """Two rows per network and gate, before and after, as bars around a middle.

    A bar is as long as the square root of its units, so that 20 filters and 800 features
    can be seen in one picture.
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


def gate_rows(sources: Iterable[Source]) -> list[Row]:
    """Histograms of open probabilities, by run, gate and epoch; empty bins left out."""
    return [row for source in sources for row in _histograms(source)]


def first_widths(sources: Iterable[Source]) -> dict[str, int]:
    """The widths of the first epoch, for when those before it are not known."""
    widths: dict[str, int] = {}
    for source in sources:
        for gate, units in source.run.epochs[0].effective.items():
            widths[gate] = max(units, widths.get(gate, 0))
    return widths


def front_rows(
    networks: Iterable[Network], published: Iterable[Published]
) -> list[Row]:
    """One row per network, ours and others', for error against cost."""
    ours = [
        {
            "name": network.name,
            "kind": "your runs",
            "error": network.error,
            "macs": network.macs,
            "parameters": network.parameters,
            "architecture": architecture(network.widths) or "dense",
            "source": "this report",
        }
        for network in networks
        if network.error is not None
    ]
    return [*ours, *map(_published_row, published)]


def _published_row(row: Published) -> Row:
    widths: LeNetWidths = row.widths
    is_paper = row.method.startswith("DiffPrune")
    return {
        "name": row.method,
        "kind": "the paper" if is_paper else "others, published",
        "error": row.error,
        "macs": widths.macs,
        "parameters": widths.parameters,
        "architecture": str(widths),
        "source": f"{row.source} ({EVIDENCE[row.evidence]})",
    }


def _says(name: str, epoch: Epoch) -> str:
    widths = f"{architecture(epoch.effective)}, " if epoch.effective else ""
    return (
        f"{name}: {epoch.test_error:.2f} % error, {widths}{short(epoch.macs)} MACs, "
        f"{epoch.seconds:.3g} s per epoch"
    )


def _histograms(source: Source) -> Iterator[Row]:
    epochs = source.run.epochs
    stride = -(-len(epochs) // MAX_COLUMNS)
    for epoch in epochs[::stride]:
        for gate, probabilities in epoch.prob_open.items():
            for bin_, count in _counts(probabilities):
                yield {
                    "run": source.name,
                    "gate": gate,
                    "epoch": epoch.number,
                    "start": epoch.number - 0.5,
                    "stop": epoch.number - 0.5 + stride,
                    "low": bin_ / BINS,
                    "high": (bin_ + 1) / BINS,
                    "count": count,
                    "share": count / len(probabilities),
                }


def _counts(probabilities: Sequence[float]) -> Iterator[tuple[int, int]]:
    bins = [min(int(p * BINS), BINS - 1) for p in probabilities]
    for bin_ in sorted(set(bins)):
        yield bin_, bins.count(bin_)

"""What networks cost and how often they err, side by side; knows no HTML."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from diffprune.lab.report.sources import Source
from diffprune.lab.runs.records import WEIGHTS, Widths
from diffprune.lab.training.progress_bar import architecture

_FEW_GATES: Final = 6


@dataclass(frozen=True, kw_only=True)
class Network:
    """One network; None where nobody knows.

    Attributes:
        name: What the report calls it.
        error: On the test set, in percent.
        parameters: Their number.
        macs: Multiply-adds for one example.
        seconds: Measured, for one example.
        file_size: Of its weights, in bytes.
        widths: Units by gate.
    """

    name: str
    error: float | None = None
    parameters: int | None = None
    macs: int | None = None
    seconds: float | None = None
    file_size: int | None = None
    widths: Widths = field(default_factory=dict[str, int])


def network(source: Source, seconds: float | None) -> Network:
    """What a run has come to, by its records and by the clock."""
    end, last = source.run.outcome, source.last
    weights = source.folder / WEIGHTS
    return Network(
        name=source.name,
        error=last.test_error if end is None else end.test_error,
        parameters=last.parameters if end is None else end.parameters,
        macs=last.macs if end is None else end.macs,
        seconds=seconds,
        file_size=weights.stat().st_size if weights.exists() else None,
        widths=last.effective if end is None else end.effective,
    )


def dense_network(sources: Sequence[Source], rebuilt: Network | None) -> Network:
    """What there was before: the first run without gates, else the task's own network.

    A rebuilt network was never trained, so it has costs but no error.
    """
    trained = next((network(s, None) for s in sources if s.is_dense), None)
    known = [found for found in (trained, rebuilt) if found is not None]
    return _merged(Network(name="dense"), *known)


def spell_widths(widths: Widths) -> str:
    """Units by gate, as the literature writes them; of many gates, their sum.

    Examples:
        >>> spell_widths({"conv1": 20, "conv2": 50})
        '20-50'
        >>> spell_widths({f"layer{number}": 100 for number in range(24)})
        '2,400 in 24 gates'
    """
    if len(widths) <= _FEW_GATES:
        return architecture(widths)
    return f"{sum(widths.values()):,} in {len(widths)} gates"


def ratio(part: float | None, whole: float | None) -> float | None:
    """What is left, if both are known."""
    return None if part is None or not whole else part / whole


def _merged(first: Network, *others: Network) -> Network:
    """For every number the first network that knows it; the first one's name."""
    for other in others:
        missing = {
            name: value
            for name, value in vars(other).items()
            if vars(first)[name] in (None, {}) and value is not None
        }
        first = replace(first, **missing)
    return first

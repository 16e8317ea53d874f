"""What the networks of runs cost and how often they err, as far as it is known."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from diffprune.lab.runs.records import WEIGHTS, Run, Widths


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


def network(run: Run, seconds: float | None) -> Network:
    """What a run has come to, by its records and by the clock."""
    latest, weights = run.latest, run.folder / WEIGHTS
    if latest is None:
        return Network(name=run.name)
    return Network(
        name=run.name,
        error=latest.test_error,
        parameters=latest.parameters,
        macs=latest.macs,
        seconds=seconds,
        file_size=weights.stat().st_size if weights.exists() else None,
        widths=latest.effective,
    )


def dense_network(runs: Sequence[Run], rebuilt: Network | None) -> Network:
    """What there was before: the first run without gates, else the task's own network.

    A rebuilt network was never trained, so it has costs but no error.
    """
    trained = next((network(s, None) for s in runs if s.is_dense), None)
    known = [found for found in (trained, rebuilt) if found is not None]
    return _merged(Network(name="dense"), *known)


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

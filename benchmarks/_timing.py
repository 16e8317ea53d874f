"""Two things timed against each other.

A benchmark file exposes `measure() -> tuple[Measurement, ...]`; `python -m benchmarks`
runs them all, prints one table and writes one record per file.
"""

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from diffprune._core.interleaved import one_thread


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """How long `subject` takes, as a ratio to `reference`.

    Attributes:
        ratio: Median of the ratios of single rounds: both are timed right after each
            other, so that a machine that slows down for a while slows down both.
        spread: First and third quartile of those ratios.
        undisturbed: The ratio of the times that one round in ten stays below: what else
            runs on a machine only ever adds to a time.
        target: The ratio we aim at, if there is one.
    """

    subject: str
    reference: str
    subject_ms: float
    reference_ms: float
    ratio: float
    spread: tuple[float, float]
    undisturbed: float
    rounds: int
    target: float | None = None


def ratio(
    subject: Callable[[], object],
    reference: Callable[[], object],
    *,
    names: tuple[str, str],
    rounds: int = 200,
    target: float | None = None,
) -> Measurement:
    """Time both in turns on one thread, so that a busy machine disturbs both alike."""
    with one_thread():
        for _ in range(max(3, rounds // 10)):  # warm caches and allocator
            subject(), reference()
        pairs = [_round(subject, reference, flip=i % 2 == 1) for i in range(rounds)]
    subject_ms = statistics.median(s for s, _ in pairs)
    reference_ms = statistics.median(r for _, r in pairs)
    first, middle, third = statistics.quantiles((s / r for s, r in pairs), n=4)
    return Measurement(
        subject=names[0],
        reference=names[1],
        subject_ms=subject_ms,
        reference_ms=reference_ms,
        ratio=middle,
        spread=(first, third),
        undisturbed=_fast(s for s, _ in pairs) / _fast(r for _, r in pairs),
        rounds=rounds,
        target=target,
    )


def _fast(times: Iterable[float]) -> float:
    return statistics.quantiles(times, n=10)[0]


def _round(
    subject: Callable[[], object], reference: Callable[[], object], *, flip: bool
) -> tuple[float, float]:
    """Milliseconds of both, run once each; `flip` decides who goes first."""
    if flip:
        reference_ms, subject_ms = milliseconds(reference), milliseconds(subject)
    else:
        subject_ms, reference_ms = milliseconds(subject), milliseconds(reference)
    return subject_ms, reference_ms


def milliseconds(work: Callable[[], object]) -> float:
    """Time on the processor: on one thread that is the time of an idle machine."""
    start = time.process_time()
    work()
    return 1e3 * (time.process_time() - start)

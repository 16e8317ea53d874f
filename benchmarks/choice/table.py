"""Records as tables in Markdown; measures nothing."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from benchmarks.choice.names import GATED, OURS, PEER, REFIT, is_peer
from benchmarks.choice.record import Record

TITLES = {
    "lenet5": "LeNet-5, MNIST, Adam",
    "resnet": "ResNet with batch norm, CIFAR-10, SGD",
    "vit": "vision transformer, CIFAR-10, AdamW",
    "lstm": "two LSTMs, rows of MNIST, Adam",
}
COMPUTES = {0.0: "none", 0.25: "1/4", 1.0: "1"}

Row = Sequence[str]
Errors = dict[int, float]
"""Test errors in per cent, by seed."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, with its standard error; none for a single seed."""

    mean: float
    spread: float | None
    count: int

    def __str__(self) -> str:
        if self.spread is None:
            return f"{self.mean:.2f}"
        return f"{self.mean:.2f} ± {self.spread:.2f}"


def estimate(values: Iterable[float]) -> Estimate:
    """The mean of some values, and its standard error.

    Examples:
        >>> print(estimate([1.0, 2.0, 3.0]), estimate([4.0]))
        2.00 ± 0.58 4.00
    """
    found = [*values]
    spread = stdev(found) / math.sqrt(len(found)) if len(found) > 1 else None
    return Estimate(mean(found), spread, len(found))


def markdown(records: Sequence[Record]) -> str:
    """The summary, then all methods, task by task."""
    return f"{summary(records)}\n\n{details(records)}"


def details(records: Sequence[Record]) -> str:
    """All methods, task by task."""
    parts = [f"### {TITLES[task]}\n\n{detail(records, task)}" for task in TITLES]
    return "\n\n".join(parts)


def summary(records: Sequence[Record]) -> str:
    """Ours beside the best peer of each cell, in its own way and with our refit.

    `dp.shrink` and what trains it comes first, a `Pruner` last.
    """
    header = (
        "network", "training", "MACs", "dense", "diffprune", "best peer", "difference",
        "best peer + refit", "difference", "seeds", "Pruner", "to best peer", "seeds",
    )  # fmt: skip
    return _table(header, [_summed(records, *cell) for cell in _cells(records)])


def _summed(records: Sequence[Record], task: str, compute: float, target: float) -> Row:
    cell = _cell(records, task, compute, target)
    ours = cell.get(OURS, {})
    peers = {name: errors for name, errors in cell.items() if is_peer(name)}
    own = {name: e for name, e in peers.items() if not name.endswith(REFIT)}
    fitted = {name: e for name, e in peers.items() if name.endswith(REFIT)}
    compared = {seed for errors in own.values() for seed in errors}
    ours = {seed: e for seed, e in ours.items() if not own or seed in compared}
    gated = {seed: e for seed, e in cell.get(GATED, {}).items() if seed in compared}
    return (
        TITLES[task],
        COMPUTES[compute],
        f"{target:g}",
        str(estimate(_of_seeds(_dense(records, task), ours or compared))),
        str(estimate(ours.values())) if ours else "cannot",
        *_against(ours, own),
        *_against(ours, fitted),
        str(len(ours) or max(map(len, peers.values()), default=0)),
        str(estimate(gated.values())) if gated else "",
        _against(gated, own)[1],
        str(len(gated)) if gated else "",
    )


def _of_seeds(errors: Errors, seeds: Collection[int]) -> list[float]:
    """Those of the seeds that a row is about; all, if none of them is known."""
    return [e for seed, e in errors.items() if seed in seeds] or [*errors.values()]


def _against(ours: Errors, peers: dict[str, Errors]) -> tuple[str, str]:
    """The best of some methods, and how far ours is from it, paired by seed."""
    full = {name: e for name, e in peers.items() if e.keys() >= ours.keys()}
    if not full:
        return "", ""
    seeds = ours.keys() or set[int].intersection(*(set(e) for e in full.values()))
    best = min(full, key=lambda name: mean(full[name][seed] for seed in seeds))
    short = best.removeprefix(PEER).removesuffix(REFIT)
    found = f"{estimate(full[best][seed] for seed in seeds)} ({short})"
    if not ours:
        return found, ""
    difference = estimate(ours[seed] - full[best][seed] for seed in seeds)
    return found, f"{'+' if difference.mean > 0 else ''}{difference}"


def detail(records: Sequence[Record], task: str) -> str:
    """All methods of a task: errors for each target, and processor seconds."""
    cells = [r for r in records if r.kind == "cell" and r.task == task]
    targets = sorted({r.target for r in cells}, reverse=True)
    header = ("training", "method", *(f"{t:g} of the MACs" for t in targets), "seconds")
    rows = list[Row]()
    for compute in sorted({r.compute for r in cells}):
        for method in dict.fromkeys(r.method for r in cells if r.compute == compute):
            mine = [r for r in cells if r.method == method and r.compute == compute]
            errors = [_shown([r for r in mine if r.target == t]) for t in targets]
            seconds = mean(r.seconds for r in mine)
            rows.append((COMPUTES[compute], method, *errors, f"{seconds:.1f}"))
    return _table(header, rows)


def _shown(records: Sequence[Record]) -> str:
    errors = [r.test_error for r in records if _is_met(r)]
    if not errors:
        return "cannot" if records else ""
    return f"{estimate(errors)} ({len(errors)})"


def _is_met(record: Record) -> bool:
    """Whether there is a network, and it costs no more than it may."""
    return record.test_error is not None and record.macs <= record.target


def _cells(records: Sequence[Record]) -> list[tuple[str, float, float]]:
    found = {(r.task, r.compute, r.target) for r in records if r.kind == "cell"}
    order = {task: number for number, task in enumerate(TITLES)}
    return sorted(found, key=lambda cell: (cell[1], order[cell[0]], -cell[2]))


def _cell(
    records: Sequence[Record], task: str, compute: float, target: float
) -> dict[str, Errors]:
    found, wanted = dict[str, Errors](), (task, compute, target)
    for r in (r for r in records if r.kind == "cell" and _is_met(r)):
        if (r.task, r.compute, r.target) == wanted:
            found.setdefault(r.method, {})[r.seed] = r.test_error
    return found


def _dense(records: Sequence[Record], task: str) -> Errors:
    return {
        r.seed: r.test_error
        for r in records
        if r.kind == "dense" and r.task == task and r.test_error is not None
    }


def _table(header: Row, rows: Sequence[Row]) -> str:
    if not rows:
        return "*There is no record yet; `make choice` makes them.*"
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

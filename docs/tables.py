"""Markdown tables from the records under results/; measures nothing.

`python docs/tables.py` prints every table and refreshes those in README.md. In the site
they are filled in when it is built. A table stands between two comments:

    <!-- table: demo -->
    <!-- end -->
"""

import json
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "results"

Record = Mapping[str, Any]
Row = Sequence[str]

_SLOT = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(text: str, results: Path = RESULTS) -> str:
    """Put every table into its place; what stood there before is replaced.

    Raises:
        KeyError: If there is no table of that name.
    """
    return _SLOT.sub(
        lambda slot: f"{slot[1]}\n{TABLES[slot[2]](results)}\n\n{slot[3]}", text
    )


def demo(results: Path) -> str:
    """The demo, a row for every seed."""
    header = (
        "seed", "test error, dense", "pruned", "open gates", "connected units",
        "parameters", "MACs per image",
    )  # fmt: skip
    records = [_load(path) for path in sorted((results / "demo").glob("seed-?.json"))]
    return _table(header, map(_demo_row, records), "diffprune demo --seed 0")


def benchmarks(results: Path) -> str:
    """What was timed against what, a row for every measurement."""
    header = (
        "what", "compared with", "ms", "ms", "ratio", "quartiles", "undisturbed",
        "target",
    )  # fmt: skip
    records = map(_load, sorted((results / "benchmarks").glob("*.json")))
    rows = [
        _benchmark_row(measurement)
        for record in records
        for measurement in record.get("measurements", ())
    ]
    return _table(header, rows, "make bench")


def coverage(results: Path) -> str:
    """The report on public architectures, below its own title."""
    report = results / "coverage" / "README.md"
    if not report.exists():
        return _missing("make coverage")
    return report.read_text(encoding="utf-8").partition("\n")[2].strip()


def generated(results: Path) -> str:
    """How removal fared on random networks, from a count that may still go on."""
    header = ("networks", "exact", "refused", "wrong", "crashed", "groups cut")
    paths = sorted((results / "generated").glob("*.json"))
    rows = [
        (
            f"{record['done']:,}",
            *(f"{record['verdicts'].get(name, 0):,}" for name in header[1:5]),
            f"{record['groups']:,}",
        )
        for record in map(_load, paths)
    ]
    command = "PYTHONPATH=tests python -m benchmarks.generated --stop 20000"
    return _table(header, rows, command)


def lenet5(results: Path) -> str:
    """Table 1 of the paper next to ours: what `diffprune reproduce lenet5` prints."""
    return _reproduced(results, "lenet5")


def wrn(results: Path) -> str:
    """Section 4.2 of the paper next to ours: what `diffprune reproduce wrn` prints."""
    return _reproduced(results, "wrn")


def wrn_step(results: Path) -> str:
    """Seconds of a training step of WRN-28-10, beside its multiply-adds."""
    header = ("widths", "parameters", "MACs per image", "share", "s per step", "share")
    path = results / "wrn" / "step.json"
    found = _load(path)["timings"] if path.exists() else []
    rows = [_step_row(timing, found[0]) for timing in found]
    return _table(header, rows, "python -m benchmarks.wrn_step")


def zeta(results: Path) -> str:
    """The same runs with zeta kept from falling below zero, and without."""
    header = (
        "zeta", "seed", "open gates", "validation error", "test error", "zeta, by gate",
        "open values",
    )  # fmt: skip
    path = results / "zeta" / "digits.json"
    found = _load(path)["results"] if path.exists() else []
    return _table(header, map(_zeta_row, found), "python -m benchmarks.zeta")


def sigma(results: Path) -> str:
    """Long runs with a wide and a narrow sigma, in several epochs."""
    header = ("sigma", "seed", "epoch", "open gates", "validation error", "test error")
    path = results / "sigma" / "digits.json"
    found = _load(path)["results"] if path.exists() else []
    return _table(header, map(_sigma_row, found), "python -m benchmarks.sigma")


def live_removal(results: Path) -> str:
    """The same runs with closed units removed as they close, or kept to the end."""
    header = (
        "closed units", "seed", "open gates", "loss", "test error", "s, first epoch",
        "s, last epoch", "s, all epochs",
    )  # fmt: skip
    path = results / "live_removal" / "digits.json"
    found = _load(path)["results"] if path.exists() else []
    rows = map(_live_row, found)
    return _table(header, rows, "python -m benchmarks.live_removal")


def budgets(results: Path) -> str:
    """Multiply-adds asked for and got, with the error that remains, per network."""
    names = {
        "mlp-digits": "784-300-100-10, digits",
        "lenet5-mnist": "LeNet-5, MNIST",
        "wrn10-cifar10": "WRN-10-1, 10,000 of CIFAR-10",
    }
    found = {
        (name, record["asked"]): f"{record['asked'] * record['used']:.4f} "
        f"({100 * (1 - record['test_accuracy']):.1f} %)"
        for name in names
        for record in map(
            _load, (results / "budgets" / name).glob("macs-*-0.001-5.json")
        )
    }
    asked = sorted({part for _, part in found}, reverse=True)
    rows = [
        (f"{part:g}", *(found.get((name, part), "") for name in names))
        for part in asked
    ]
    return _table(("asked", *names.values()), rows, "python -m benchmarks.budgets")


def frontier(results: Path) -> str:
    """Published networks and ours, the smallest first."""
    header = ("", "architecture", "weights", "MACs per image", "test error")
    path = results / "frontier" / "front.json"
    found = _load(path)["results"] if path.exists() else []
    return _table(header, map(_front_row, found), "python -m benchmarks.frontier")


TABLES: Mapping[str, Callable[[Path], str]] = {
    "demo": demo,
    "lenet5": lenet5,
    "wrn": wrn,
    "wrn-step": wrn_step,
    "zeta": zeta,
    "sigma": sigma,
    "live-removal": live_removal,
    "budgets": budgets,
    "frontier": frontier,
    "benchmarks": benchmarks,
    "coverage": coverage,
    "generated": generated,
}


def _demo_row(record: Record) -> Row:
    dense, pruned = record["dense"], record["pruned"]
    return (
        str(record["seed"]),
        f"{dense['test_error']:.2f} %",
        f"{pruned['test_error']:.2f} %",
        "-".join(map(str, pruned["raw_widths"])),
        "-".join(map(str, pruned["effective_widths"])),
        _of(pruned["parameters"], dense["parameters"]),
        _of(pruned["macs"], dense["macs"]),
    )


def _benchmark_row(measurement: Record) -> Row:
    low, high = measurement["spread"]
    target = measurement["target"]
    return (
        measurement["subject"],
        measurement["reference"],
        f"{measurement['subject_ms']:.2f}",
        f"{measurement['reference_ms']:.2f}",
        f"{measurement['ratio']:.2f}",
        f"{low:.2f} to {high:.2f}",
        f"{measurement['undisturbed']:.2f}" if "undisturbed" in measurement else "",
        "" if target is None else f"{target:.2f}",
    )


def _step_row(timing: Record, full: Record) -> Row:
    seconds, most = (statistics.median(t["seconds"]) for t in (timing, full))
    return (
        timing["network"],
        f"{timing['parameters']:,}",
        f"{timing['macs']:,}",
        f"{timing['macs'] / full['macs']:.1%}",
        f"{seconds:.2f}",
        f"{seconds / most:.1%}",
    )


def _zeta_row(result: Record) -> Row:
    return (
        "at least 0" if result["constrained"] else "free",
        str(result["seed"]),
        "-".join(map(str, result["raw"].values())),
        f"{result['validation_error']:.2f} %",
        f"{result['test_error']:.2f} %",
        ", ".join(f"{value:.2f}" for value in result["zeta"].values()),
        f"{result['smallest']:.2f} to {result['largest']:.2f}",
    )


def _sigma_row(result: Record) -> Row:
    return (
        f"{result['sigma']}",
        str(result["seed"]),
        str(result["epoch"]),
        "-".join(map(str, result["raw"].values())),
        f"{result['validation_error']:.2f} %",
        f"{result['test_error']:.2f} %",
    )


def _live_row(result: Record) -> Row:
    seconds = result["seconds"]
    return (
        "removed" if result["removed"] else "kept",
        str(result["seed"]),
        "-".join(map(str, result["raw"].values())),
        f"{result['loss']:.5f}",
        f"{result['test_error']:.2f} %",
        f"{seconds[0]:.2f}",
        f"{seconds[-1]:.2f}",
        f"{sum(seconds):.1f}",
    )


def _reproduced(results: Path, name: str) -> str:
    if not any((results / name).glob("*/recipe.json")):
        return _missing(f"diffprune reproduce {name} --run")
    from paper import reproduce  # noqa: PLC0415 - imports torch

    runs = reproduce.read_records(results / name)
    table = reproduce.EXPERIMENTS[name].table(runs)
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    header = [str(column.header) for column in table.columns]
    rows = _table(header, zip(*columns, strict=True), "")
    return f"{rows}\n\n{table.caption}." if table.caption else rows


def _front_row(point: Record) -> Row:
    cells = (
        point["name"],
        point["architecture"],
        f"{point['weights']:,}",
        f"{point['macs']:,}",
        f"{point['error']:.2f} %",
    )
    return [f"**{cell}**" for cell in cells] if point["is_ours"] else cells


def _of(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({part / whole:.1%})"


def _table(header: Row, rows: Iterable[Row], command: str) -> str:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if not lines:
        return _missing(command)
    ruler = f"|{' --- |' * len(header)}"
    return "\n".join([f"| {' | '.join(header)} |", ruler, *lines])


def _missing(command: str) -> str:
    return f"*There is no record yet; `{command}` makes one.*"


def _load(path: Path) -> Record:
    return json.loads(path.read_text(encoding="utf-8"))


def main() -> None:
    """Print all tables, and refresh those of the README."""
    for name, make in TABLES.items():
        sys.stdout.write(f"{name}\n\n{make(RESULTS)}\n\n")
    README.write_text(fill(README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()

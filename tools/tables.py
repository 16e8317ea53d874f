"""Markdown tables of the README and the site, made from the records.

`python -m tools.tables` prints every table and refreshes those in README.md and docs,
so that they can be read without the site. A table stands between two comments:

    <!-- table: demo -->
    <!-- end -->
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from benchmarks import (
    choice_factors,
    closing_plans,
    leaving_ways,
    narrow_norms,
    strengths as strength_runs,
    transformer_models,
)
from benchmarks._command import command
from benchmarks._run_record import ResultT, RunRecord
from benchmarks.choice import table as choice_table
from benchmarks.choice.record import Record as ChoiceRecord, load as load_choices
from diffprune.errors import ArgumentError
from paper.experiments import EXPERIMENTS
from paper.measured import ABLATIONS, CALIBRATION, STEPS, Figures
from paper.records import read_records
from paper.tables.comparison_table import comparison_table, read_comparison
from paper.tables.frontier_table import frontier_table, points, read_frontier

ROOT: Final = Path(__file__).parent.parent

Record = Mapping[str, Any]
Row = Sequence[str]
MakeTable = Callable[[Path], str]
"""From the root of the repository to a table."""

_SLOT = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(text: str, root: Path = ROOT) -> str:
    """Put every table into its place; what stood there before is replaced.

    Args:
        text: A page in Markdown.
        root: The folder that `results` and `paper/results` are in.

    Raises:
        KeyError: If there is no table of that name.
    """
    return _SLOT.sub(
        lambda slot: f"{slot[1]}\n{TABLES[slot[2]](root)}\n\n{slot[3]}", text
    )


def pages() -> list[Path]:
    """The pages that have tables."""
    everything = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [p for p in everything if _SLOT.search(p.read_text(encoding="utf-8"))]


def demo(root: Path) -> str:
    """The demo, a row for every seed."""
    header = (
        "seed", "test error, dense", "pruned", "units", "parameters", "MACs per image"
    )  # fmt: skip
    paths = sorted((root / "results" / "demo").glob("seed-?.json"))
    return _table(header, map(_demo_row, map(_load, paths)), "diffprune demo --seed 0")


def benchmarks(root: Path) -> str:
    """What was timed against what, a row for every measurement."""
    header = (
        "what", "compared with", "ms", "ms", "ratio", "quartiles", "undisturbed",
        "target",
    )  # fmt: skip
    records = map(_load, sorted((root / "results" / "benchmarks").glob("*.json")))
    rows = [
        _benchmark_row(measurement)
        for record in records
        for measurement in record.get("measurements", ())
        if "ratio" in measurement  # some benchmarks compare nothing
    ]
    return _table(header, rows, "make bench")


def coverage(root: Path) -> str:
    """The report on public architectures, below its own title."""
    report = root / "results" / "coverage" / "README.md"
    if not report.exists():
        return _missing("make coverage")
    return report.read_text(encoding="utf-8").partition("\n")[2].strip()


def generated(root: Path) -> str:
    """How removal fared on random networks, from a count that may still go on."""
    header = ("networks", "exact", "refused", "wrong", "crashed", "groups cut", "at")
    rows = [
        (
            f"{record['done']:,}",
            *(f"{record['verdicts'].get(name, 0):,}" for name in header[1:5]),
            f"{record['groups']:,}",
            record["commit"],
        )
        for record in map(_load, sorted((root / "results/generated").glob("*.json")))
    ]
    command = "PYTHONPATH=tests python -m benchmarks.generated --stop 20000"
    return _table(header, rows, command)


def choice(show: Callable[[Sequence[ChoiceRecord]], str]) -> MakeTable:
    """Errors of networks that were cut by us and by others."""

    def make(root: Path) -> str:
        return show([*load_choices(root / "results/choice/records.jsonl").values()])

    return make


def budgets(root: Path) -> str:
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
            _load, (root / "results/budgets" / name).glob("macs-*-0.001-5.json")
        )
    }
    asked = sorted({part for _, part in found}, reverse=True)
    rows = [
        (f"{part:g}", *(found.get((name, part), "") for name in names))
        for part in asked
    ]
    return _table(("asked", *names.values()), rows, "python -m benchmarks.budgets")


def paper_table(name: str) -> MakeTable:
    """A table of the paper next to ours, as `python -m paper table` prints it."""
    typed = f"python -m paper table {name} --run"

    def make(root: Path) -> str:
        try:
            runs = read_records(root / "paper/results" / name, typed)
        except ArgumentError:
            return _missing(typed)
        return _markdown(EXPERIMENTS[name].table(runs))

    return make


def comparison(root: Path) -> str:
    """Every system of Table 1, published and run here."""
    try:
        runs = read_comparison(root / "paper/results")
    except ArgumentError:
        return _missing("python -m paper table1 --run")
    return _markdown(comparison_table(runs))


def frontier(root: Path) -> str:
    """Published networks and ours, the smallest first."""
    try:
        runs = read_frontier(root / "paper/results")
    except ArgumentError:
        return _missing("python -m paper frontier --run")
    return _markdown(frontier_table(points(runs)))


def figures_table(figures: Figures) -> MakeTable:
    """A table of figures that `python -m paper` measured and prints."""

    def make(root: Path) -> str:
        try:
            return _markdown(figures.table(root / "paper/results"))
        except ArgumentError:
            return _missing(figures.typed)

    return make


def strengths(root: Path) -> str:
    """What strength and the gates' learning rate do."""
    try:
        found = strength_runs.read(root / "results" / "strengths.json")
    except ArgumentError:
        return _missing(strength_runs.COMMAND)
    return _markdown(strength_runs.table(found))


def norms_table(root: Path) -> str:
    """Errors of networks whose norms are left whole, or narrowed."""
    header = ["network", "dense"]
    header += [
        f"{p:g}, {norms}" for p in narrow_norms.PARTS for norms in narrow_norms.NORMS
    ]
    try:
        found = narrow_norms.read(root / "results" / "narrow_norms.json")
    except ArgumentError:
        return _missing(narrow_norms.COMMAND)
    return _table(header, narrow_norms.means(found), "")


def plans_table(root: Path) -> str:
    """Errors of networks whose units leave sooner or later."""
    header = ["start", "equal", "network", *closing_plans.PLANS, closing_plans.NARROW]
    return _runs_table(root, closing_plans.RUNS, header, closing_plans.means)


def factors_table(root: Path) -> str:
    """Errors of networks whose widths, units and weights were chosen differently."""
    header = ["training", "network", *choice_factors.TITLES]
    return _runs_table(root, choice_factors.RUNS, header, choice_factors.means)


def leaving_table(root: Path) -> str:
    """Errors of networks whose units are dropped, faded, or dropped with a refit."""
    header = ["network", *leaving_ways.WAYS]
    return _runs_table(root, leaving_ways.RUNS, header, leaving_ways.means)


def transformers_table(root: Path) -> str:
    """What can be removed from models of transformers, and what configs can say."""
    models = transformer_models
    return _runs_table(root, models.RUNS, models.HEADER, models.rows)


def _runs_table(
    root: Path,
    runs: RunRecord[Any, ResultT],
    header: Sequence[str],
    means: Callable[[Sequence[ResultT]], Iterable[Sequence[str]]],
) -> str:
    """The means of runs on record, or the command that makes them."""
    try:
        found = runs.read(root / "results" / runs.path.name)
    except ArgumentError:
        return _missing(runs.command)
    return _table(header, means(found), "")


TABLES: Final[Mapping[str, MakeTable]] = {
    "demo": demo,
    "lenet5": paper_table("lenet5"),
    "table1": comparison,
    "wrn": paper_table("wrn"),
    "wrn-10-4": paper_table("wrn-10-4"),
    "wrn-10-4-few": paper_table("wrn-10-4-few"),
    "lenet5-trials": paper_table("lenet5-trials"),
    "wrn-10-1": paper_table("wrn-10-1"),
    "wrn-step": figures_table(STEPS["wrn-28-10"]),
    "calibration": figures_table(CALIBRATION),
    "zeta": figures_table(ABLATIONS["zeta"]),
    "sigma": figures_table(ABLATIONS["sigma"]),
    "fading": figures_table(ABLATIONS["fading"]),
    "live-removal": figures_table(ABLATIONS["live_removal"]),
    "budgets": budgets,
    "narrow-norms": norms_table,
    "closing-plans": plans_table,
    "choice-factors": factors_table,
    "leaving-ways": leaving_table,
    "transformers": transformers_table,
    "choice": choice(choice_table.summary),
    "choice-details": choice(choice_table.details),
    "frontier": frontier,
    "strengths": strengths,
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
        "-".join(map(str, pruned["units"].values())),
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


def _of(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} ({part / whole:.1%})"


def _markdown(table: Table) -> str:
    """A table for a terminal as Markdown; bold rows stay bold."""
    header = [str(column.header) for column in table.columns]
    cells = zip(*(map(str, column.cells) for column in table.columns), strict=True)
    rows = [
        [f"**{cell}**" if row.style == "bold" and cell else cell for cell in found]
        for row, found in zip(table.rows, cells, strict=True)
    ]
    text = _table(header, rows, "")
    return f"{text}\n\n{table.caption}." if table.caption else text


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
    """Print all tables, and refresh those of the pages."""
    command(__doc__).parse_args()
    for name, make in TABLES.items():
        sys.stdout.write(f"{name}\n\n{make(ROOT)}\n\n")
    for page in pages():
        page.write_text(fill(page.read_text(encoding="utf-8")), encoding="utf-8")
        sys.stdout.write(f"Written to {page.relative_to(ROOT)}.\n")


if __name__ == "__main__":
    main()

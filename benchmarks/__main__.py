"""Run the benchmarks: `python -m benchmarks`, or some of them by name.

Prints one table; the figures are kept under results/benchmarks/.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from . import (
    certificate_cost,
    data_share,
    evidence_cost,
    gate_speed,
    graph_scale,
    graph_speed,
    lenet_step,
    load_speed,
    pruner_speed,
    shrink_speed,
)
from ._command import command, one_of
from ._records import RESULTS, write_measurements
from ._timing import Measurement

BENCHMARKS = {
    "certificate_cost": certificate_cost,
    "data_share": data_share,
    "evidence_cost": evidence_cost,
    "gate_speed": gate_speed,
    "graph_scale": graph_scale,
    "graph_speed": graph_speed,
    "lenet_step": lenet_step,
    "load_speed": load_speed,
    "pruner_speed": pruner_speed,
    "shrink_speed": shrink_speed,
}


def main(names: Sequence[str]) -> None:
    """Run the named benchmarks, or all of them."""
    table = _empty_table()
    for name in names or BENCHMARKS:
        measurements = BENCHMARKS[name].measure()
        write_measurements(name, BENCHMARKS[name].RECIPE, measurements)
        for measurement in measurements:
            table.add_row(*_cells(measurement))
    Console().print(table, f"Records written to {RESULTS / 'benchmarks'}.")


def _empty_table() -> Table:
    table = Table("what", "compared with")
    for name in ("ms", "ms", "ratio", "quartiles", "undisturbed", "target"):
        table.add_column(name, justify="right")
    return table


def _cells(measurement: Measurement) -> tuple[str, ...]:
    low, high = measurement.spread
    target = measurement.target
    return (
        measurement.subject,
        measurement.reference,
        f"{measurement.subject_ms:.2f}",
        f"{measurement.reference_ms:.2f}",
        f"{measurement.ratio:.3f}",
        f"{low:.3f}-{high:.3f}",
        f"{measurement.undisturbed:.3f}",
        "" if target is None else f"{target:.2f}",
    )


if __name__ == "__main__":
    parser = command(__doc__)
    parser.add_argument(
        "names", nargs="*", type=one_of(BENCHMARKS), metavar="NAME",
        help=f"by default all: {', '.join(BENCHMARKS)}",
    )  # fmt: skip
    main(parser.parse_args().names)

"""Predicted against measured latency of ResNet-18: `python -m benchmarks.latency`.

Builds the table of timings from nothing, removes units at random, and times what is
left. Times are of the processor on one thread: those of an idle machine.
"""

import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from diffprune._costs.latency import latency, measure_in_turns
from diffprune._costs.network import Network
from diffprune._graph import find_groups
from diffprune._surgery import apply_plan, plan_removal

from ._command import command
from ._records import RESULTS, write
from .resnets import resnet18

RECORD = RESULTS / "budgets" / "latency.json"
KEPT = (1.0, 0.8, 0.6, 0.4, 0.2, 0.1)


def compare() -> dict[str, object]:
    """Build the table, then look at networks that keep less and less."""
    torch.manual_seed(0)
    model, x = resnet18().eval(), torch.rand(1, 3, 224, 224)
    groups = find_groups(model, x)
    network = Network(model, x, groups, tuple(groups))
    start = time.process_time(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        predicted = latency(network, Path(folder))
    processor, wall = time.process_time() - start[0], time.perf_counter() - start[1]
    rows = []
    for part in KEPT:
        keep = {g.name: torch.rand(g.size) <= part for g in groups}
        for units in keep.values():
            units[:2] = True
        small = apply_plan(model, plan_removal(groups, keep=keep))
        widths = torch.tensor([float(units.sum()) for units in keep.values()])
        (seconds,) = measure_in_turns([small], x)
        rows.append((part, 1e3 * float(predicted(widths)), 1e3 * seconds))
    return {
        "network": "resnet18, one image of 224 pixels, one thread",
        "processor_seconds": processor,
        "seconds": wall,
        "kept_predicted_ms_measured_ms": rows,
    }


def main() -> None:
    """Measure, write the record, and print it."""
    torch.set_num_threads(1)
    record = compare()
    write(RECORD, "python -m benchmarks.latency", **record)
    table = Table("units kept", "predicted ms", "measured ms", "ratio")
    for part, predicted, measured in record["kept_predicted_ms_measured_ms"]:
        ratio = predicted / measured
        table.add_row(
            f"{part:.0%}", f"{predicted:.1f}", f"{measured:.1f}", f"{ratio:.2f}"
        )
    built = f"{record['processor_seconds']:.0f} s of the processor"
    Console().print(table, f"table built in {built}, {record['seconds']:.0f} s in all")
    Console().print(f"Record written to {RECORD}.")


if __name__ == "__main__":
    command(__doc__).parse_args()
    main()

"""What gates add to the peak memory of a training step; knows the steps of the speed.

`python -m benchmarks.pruner_memory` prints the ratios and writes their record. Counted
is what a step allocates, as the profiler sees it; parameters and optimizer state, which
exist before, are not.
"""

import datetime as dt
import json
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from .pruner_speed import RECIPE, cases, make_step

RECORD = Path("results/memory/pruner.json")


def peak_bytes(step: Callable[[], None]) -> int:
    """The most memory that one step holds at once, beyond what it found."""
    step()  # the optimizer makes its state
    activities = [ProfilerActivity.CPU]
    with profile(activities=activities, profile_memory=True) as profiler:
        step()
    results = profiler.profiler.kineto_results
    events = [event for event in results.events() if event.name() == "[memory]"]
    held, peak = 0, 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def main() -> None:
    """Measure, print, record."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    found = dict[str, dict[str, float]]()
    for name, case in cases().items():
        gated, dense = (peak_bytes(make_step(case, gated=g)) for g in (True, False))
        found[name] = {"gated": gated, "dense": dense, "ratio": gated / dense}
        sizes = f"{gated / 1e6:.1f} MB over {dense / 1e6:.1f} MB"
        print(f"{name}: {sizes} = {gated / dense:.3f}")
    record = {
        "command": "python -m benchmarks.pruner_memory",
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "recipe": RECIPE,
        "versions": {"python": platform.python_version(), "torch": version("torch")},
        "peak_bytes": found,
    }
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"record in {RECORD}")


if __name__ == "__main__":
    main()

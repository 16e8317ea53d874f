"""What gates add to the peak memory of a training step.

`python -m benchmarks.pruner_memory` prints the ratios and writes their record. Counted
is what a step allocates, as the profiler sees it; parameters and optimizer state, which
exist before, are not.
"""

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from ._command import command
from ._records import RESULTS, write
from .pruner_speed import RECIPE, cases, make_step

RECORD = RESULTS / "memory" / "pruner.json"


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
    write(RECORD, "python -m benchmarks.pruner_memory", recipe=RECIPE, peak_bytes=found)
    print(f"Record written to {RECORD}.")


if __name__ == "__main__":
    command(__doc__).parse_args()
    main()

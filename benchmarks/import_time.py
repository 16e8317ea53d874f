"""What importing diffprune adds to importing torch, in seconds of the processor.

`python -m benchmarks.import_time` prints the seconds and writes their record. Every
round is a process of its own, in which torch comes first. As names are imported when
they are used, the import alone says little: the time of all names counts.
"""

import statistics
import subprocess
import sys
from itertools import pairwise

from ._command import command
from ._records import RESULTS, write

RECORD = RESULTS / "benchmarks" / "import_time.json"
ROUNDS = 9
STEPS = {
    "import torch": "import torch",
    "torch.export, which torch imports late": "import torch.export, torch._dynamo",
    "import diffprune": "import diffprune",
    "all public names": "[getattr(diffprune, name) for name in dir(diffprune)]",
}
CLOCK = "print(f'{time.process_time():.6f}')"


def measure() -> dict[str, float]:
    """Milliseconds on the processor that each step takes, medians over all rounds."""
    script = "\n".join(
        ["import time", CLOCK, *(f"{s}\n{CLOCK}" for s in STEPS.values())]
    )
    rounds = [_round(script) for _ in range(ROUNDS)]
    return {
        name: statistics.median(1e3 * times[i] for times in rounds)
        for i, name in enumerate(STEPS)
    }


def _round(script: str) -> list[float]:
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own words
    ticks = [float(line) for line in done.stdout.split()]
    return [after - before for before, after in pairwise(ticks)]


def main() -> None:
    """Measure, print, record."""
    found = measure()
    for name, milliseconds in found.items():
        print(f"{name}: {milliseconds:.0f} ms")
    write(RECORD, "python -m benchmarks.import_time", rounds=ROUNDS, milliseconds=found)
    print(f"Record written to {RECORD}.")


if __name__ == "__main__":
    command(__doc__).parse_args()
    main()

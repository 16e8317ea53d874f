"""What a removal costs when `fully_shard` divides a model between two processes.

`python -m benchmarks.sharded_removal` prints seconds and memory for models of 8, 50 and
201 million parameters, and writes their record; `... 1 3 6` does so for models of so
many blocks. A tenth of the units leaves each time. Seconds depend on what else runs:
the load of the machine is part of the record.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard

import diffprune as dp

WIDTH: Final = 1024
BLOCKS: Final = (1, 6, 24)
RECIPE: Final = {
    "width": WIDTH,
    "inner width": 4 * WIDTH,
    "optimizer": "Adam, float32",
    "processes": 2,
    "backend": "gloo",
    "share of units that leaves": 0.1,
    "batch per process": 8,
}


class Block(nn.Module):
    """The feed-forward half of a transformer's layer."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Add to the stream."""
        return x + self.down(torch.relu(self.up(x)))


def shard(model: nn.Sequential) -> None:
    """Divide block by block."""
    for block in model:
        fully_shard(block)
    fully_shard(model)


def measure(blocks: int) -> dict[str, float]:
    """Train two steps, remove a tenth of all units, train on."""
    distributed.init_process_group("gloo", timeout=timedelta(minutes=20))
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(*(Block() for _ in range(blocks)))
    count = sum(parameter.numel() for parameter in model.parameters())
    inputs = torch.randn(8, WIDTH)
    pruner = dp.Pruner(model, inputs, strength=1e-6, remove_every=10**6)
    pruner.shard_(shard)
    optimizer = torch.optim.Adam(pruner.parameter_groups(lr=1e-4))

    def step() -> None:
        loss = model(inputs).square().mean() + pruner.penalty()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pruner.step(optimizer)

    step()
    seconds_of_step = _seconds(step)
    memory_of_step = _peak()
    for gate in pruner.gates.values():
        gate.logits.data[: gate.size // 10] = -20.0
    seconds = _seconds(lambda: pruner.remove_closed_(optimizer))
    memory = _peak()
    step()
    return {
        "parameters": count,
        "seconds per removal": seconds,
        "seconds per step": seconds_of_step,
        "peak bytes of a process while it trains": memory_of_step,
        "peak bytes of a process with the removal": memory,
        "parameters left": pruner.shape().parameters,
        "processes that wanted to run, on average": os.getloadavg()[0],
    }


def _seconds(work: Callable[[], object]) -> float:
    distributed.barrier()
    start = time.perf_counter()
    work()
    distributed.barrier()
    return time.perf_counter() - start


def _peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(sizes: Sequence[int]) -> None:
    """Measure each size in processes of its own, print, record."""
    from ._records import RESULTS, write  # noqa: PLC0415 - the processes need none

    found = list[dict[str, float]]()
    for blocks in sizes or BLOCKS:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command = [*torchrun, "--nproc-per-node=2", __file__, str(blocks)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - this very file
        line = next(line for line in done.stdout.splitlines() if line[:1] == "{")
        found.append(json.loads(line))
        print(line, flush=True)
    path = RESULTS / "benchmarks" / f"{Path(__file__).stem}.json"
    command = " ".join(["python -m benchmarks.sharded_removal", *map(str, sizes)])
    write(path, command, recipe=RECIPE, measurements=found)
    print(f"Record written to {path}.")


if __name__ == "__main__":
    if distributed.is_torchelastic_launched():
        result = measure(int(sys.argv[1]))
        if distributed.get_rank() == 0:
            print(json.dumps(result), flush=True)
        distributed.destroy_process_group()
    else:
        from ._command import command

        parser = command(__doc__)
        parser.add_argument("blocks", nargs="*", type=int, help="of each model")
        main(parser.parse_args().blocks)

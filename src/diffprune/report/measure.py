"""The networks of runs, made again: their costs before training, and their speed here.

Runs the code of tasks; knows nothing of what is made of the numbers.
"""

import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import safetensors.torch
import torch
from torch import Tensor, nn

from diffprune.errors import DiffpruneError
from diffprune.experiment.rebuild import rebuild, task_of
from diffprune.pruner import Pruner
from diffprune.report.networks import Network
from diffprune.report.sources import Source

ROUNDS: Final = 21
_WARM_UP: Final = 3
_NUM_EXAMPLES: Final = 2
_SHORTEST_ROUND: Final = 2e-3
"""Shorter ones say more about the clock than about the network."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What can only be known from the networks themselves.

    Attributes:
        dense: The first run's network before training; None if it cannot be made.
        steps: In an epoch of that run.
        seconds: A forward pass for one example, by name of the network.
        note: How the seconds were measured, or why they were not.
    """

    note: str
    dense: Network | None = None
    steps: int | None = None
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])


def measure(sources: Sequence[Source]) -> Measured:
    """Rebuild the networks of gated runs and hold a clock to those that are finished."""
    gated = [source for source in sources if not source.is_dense]
    if not any(source.run.task for source in gated):
        return Measured(note="Not measured: no run says where its task is written.")
    try:
        dense, steps = _before(gated[0])
        seconds = _latencies(gated)
    except (DiffpruneError, OSError) as error:
        return Measured(note=f"Not measured: {error}")
    return Measured(note=_how(seconds), dense=dense, steps=steps, seconds=seconds)


def latencies(models: Mapping[str, nn.Module], inputs: Tensor) -> dict[str, float]:
    """Median seconds of a forward pass; the models take turns, so none is favoured."""
    calls = {name: _call(model.eval(), inputs) for name, model in models.items()}
    repeats = {name: _repeats(call) for name, call in calls.items()}
    rounds = [
        {name: _time(call, repeats[name]) for name, call in calls.items()}
        for _ in range(ROUNDS)
    ]
    return {name: statistics.median(r[name] for r in rounds) for name in calls}


def _before(source: Source) -> tuple[Network, int]:
    """A run's network as it was made, and the steps of an epoch."""
    with torch.random.fork_rng():
        task = task_of(source.folder)(source.run.recipe)
    weights = {n: t for n, t in task.model.state_dict().items() if "gate" not in n}
    inputs, _ = next(iter(task.test))
    start = Pruner(task.model, inputs[:_NUM_EXAMPLES], strength=0.0).dense
    network = Network(
        name="dense",
        parameters=start.parameters,
        macs=start.macs // len(inputs[:_NUM_EXAMPLES]),
        file_size=len(safetensors.torch.save(weights)),
        widths=start.units,
    )
    return network, len(task.train)


def _latencies(sources: Sequence[Source]) -> dict[str, float]:
    finished = [source for source in sources if source.run.outcome and source.run.task]
    if not finished:
        return {}
    rebuilt = {source.name: rebuild(source.folder) for source in finished}
    first = rebuilt[finished[0].name]
    small = {name: models.small for name, models in rebuilt.items()}
    return latencies({"dense": first.dense, **small}, first.inputs[:1])


def _call(model: nn.Module, inputs: Tensor) -> Callable[[], object]:
    @torch.inference_mode()
    def call() -> object:
        return model(inputs)

    return call


def _repeats(call: Callable[[], object]) -> int:
    once = min(_time(call, 1) for _ in range(_WARM_UP))
    return max(1, round(_SHORTEST_ROUND / once))


def _time(call: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def _how(seconds: Mapping[str, float]) -> str:
    if not seconds:
        return "Latency is measured once a run is finished."
    return (
        f"Latency: one example, median of {ROUNDS} rounds in turn, "
        f"{torch.get_num_threads()} threads, {platform.system()} {platform.machine()}."
    )

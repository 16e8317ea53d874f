"""The networks of runs, made again: their costs before training, and their speed here.

Runs the code of tasks; knows nothing of what is made of the numbers.
"""

import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import safetensors.torch
import torch
from torch import Tensor, nn

from diffprune.errors import DiffpruneError
from diffprune.experiment.rebuild import rebuild, task_of
from diffprune.penalty import named_gates
from diffprune.pruner import Pruner
from diffprune.report.networks import Network
from diffprune.report.sources import Source

ROUNDS: Final = 21
_WARM_UP: Final = 3
_NUM_EXAMPLES: Final = 2
_SHORTEST_ROUND: Final = 2e-3
"""Shorter ones say more about the clock than about the network."""
_LATER: Final = "Latency is measured once a run is finished."


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What can only be known from the networks themselves.

    Attributes:
        dense: The first run's network before training; None if it cannot be made.
        seconds: Of a forward pass of what runs have left, for one example, by run.
        note: How the seconds were measured, or why they were not.
    """

    note: str
    dense: Network | None = None
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])


def measure(sources: Sequence[Source]) -> Measured:
    """Make the networks of gated runs again, and time those that are finished."""
    known = [s for s in sources if s.run.task and not s.is_dense]
    if not known:
        return Measured(note="Latency: no run says where its task is written.")
    dense: Network | None = None
    try:
        dense = _before(known[0])
        finished = [source for source in known if source.run.outcome]
        return (
            _timed(dense, finished) if finished else Measured(note=_LATER, dense=dense)
        )
    except (DiffpruneError, OSError) as error:
        reason = str(error).partition("\n")[0]
        return Measured(note=f"Latency was not measured: {reason}", dense=dense)


def latencies(models: Sequence[nn.Module], inputs: Tensor) -> list[float]:
    """Median seconds of a forward pass; the models take turns, so none is favoured."""
    calls = [_call(model.eval(), inputs) for model in models]
    repeats = [_repeats(call) for call in calls]
    rounds = [list(map(_time, calls, repeats)) for _ in range(ROUNDS)]
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


def _before(source: Source) -> Network:
    """A run's network as it was made."""
    with torch.random.fork_rng():
        task = task_of(source.folder)(source.run.recipe)
        inputs, _ = next(iter(task.test))
    file_size = len(safetensors.torch.save(_weights(task.model)))
    examples = inputs[:_NUM_EXAMPLES]
    start = Pruner(task.model, examples, strength=0.0).dense
    return Network(
        name="dense",
        parameters=start.parameters,
        macs=start.macs // len(examples),
        file_size=file_size,
        widths=start.units,
    )


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """What a model would save if it had no gates."""
    gates = tuple(f"{name}." for name in named_gates(model))
    state = model.state_dict().items()
    return {name: tensor for name, tensor in state if not name.startswith(gates)}


def _timed(dense: Network, finished: Sequence[Source]) -> Measured:
    rebuilt = [rebuild(source.folder) for source in finished]
    models = [rebuilt[0].dense, *(models.small for models in rebuilt)]
    first, *others = latencies(models, rebuilt[0].inputs[:1])
    return Measured(
        note=(
            f"Latency: one example, median of {ROUNDS} rounds in turn, threads: "
            f"{torch.get_num_threads()}, {platform.system()} {platform.machine()}."
        ),
        dense=replace(dense, seconds=first),
        seconds=dict(zip((source.name for source in finished), others, strict=True)),
    )


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

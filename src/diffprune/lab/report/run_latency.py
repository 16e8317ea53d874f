"""Make the networks of runs again: their costs before training, their speed here.

This runs the code of the tasks that the runs name.
"""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn

from diffprune._core.interleaved import time_in_turns
from diffprune._core.tensor_files import stored_size
from diffprune._pruner import Pruner
from diffprune.errors import ArgumentError, DiffpruneError
from diffprune.gates.penalty import gate_paths
from diffprune.lab.report.diagram import Block, diagram
from diffprune.lab.report.networks import LayerCost, Network, layer_costs
from diffprune.lab.runs.rebuild import make_model, rebuild
from diffprune.lab.runs.records import Run

ROUNDS: Final = 31
_NUM_EXAMPLES: Final = 2


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What can only be known from the networks themselves.

    Attributes:
        dense: The first run's network before training; None if it cannot be made.
        seconds: Of a forward pass of what runs have left, for one example, by run.
        layers: What the layers of finished runs cost, before and after, by run.
        blocks: The network before, layer by layer; empty if it was not made.
        small_blocks: What finished runs have made of it, by run.
        note: How the seconds were measured, or why they were not.
    """

    note: str
    dense: Network | None = None
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    layers: Mapping[str, Sequence[LayerCost]] = field(
        default_factory=dict[str, Sequence[LayerCost]]
    )
    blocks: Sequence[Block] = ()
    small_blocks: Mapping[str, Sequence[Block]] = field(
        default_factory=dict[str, Sequence[Block]]
    )


def measure(runs: Sequence[Run], *, trust: bool = False) -> Measured:
    """Make the networks of gated runs again, and time those that are finished.

    Args:
        runs: Each with at least one epoch.
        trust: Whether to run code outside the present folder if a run names it.
    """
    if all(run.is_dense for run in runs):
        return Measured(note="Latency is measured of runs with gates; there is none.")
    known = [s for s in runs if s.task and not s.is_dense]
    if not known:
        return Measured(note="Latency: no run says where its task is written.")
    dense: Network | None = None
    try:
        dense = _before(known[0], trust=trust)
        finished = [run for run in known if run.outcome]
        if finished:
            return _timed(dense, finished, trust=trust)
    except Exception as error:  # noqa: BLE001 - code of the task, which can raise all
        reason = str(error).partition("\n")[0]
        if not isinstance(error, DiffpruneError | OSError):
            reason = f"{type(error).__name__}: {reason}"
        return Measured(note=f"Latency was not measured: {reason}", dense=dense)
    note = "Latency is measured once a run is finished."
    return Measured(note=note, dense=dense)


def _before(run: Run, *, trust: bool) -> Network:
    """A run's network as it was made."""
    model, inputs = make_model(run, trust=trust)
    file_size = stored_size(_weights(model))
    examples = inputs[:_NUM_EXAMPLES]
    with torch.random.fork_rng():
        start = Pruner(model, examples, strength=0.0).dense
    return Network(
        name="dense",
        parameters=start.parameters,
        macs=start.macs // len(examples),
        file_size=file_size,
        widths=start.units,
    )


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """What a model would save if it had no gates."""
    gates = tuple(f"{name}." for name in gate_paths(model))
    state = model.state_dict().items()
    return {name: tensor for name, tensor in state if not name.startswith(gates)}


def _timed(dense: Network, finished: Sequence[Run], *, trust: bool) -> Measured:
    rebuilt = {run.name: rebuild(run.folder, trust=trust) for run in finished}
    whole, inputs = next((m.dense, m.inputs[:1]) for m in rebuilt.values())
    small = {name: models.small.eval() for name, models in rebuilt.items()}
    for name, model in small.items():
        _check_runs(name, model, inputs)
    calls = {name: partial(model, inputs) for name, model in small.items()}
    with torch.inference_mode():
        first, *others = time_in_turns(
            {"": partial(whole.eval(), inputs), **calls}, rounds=ROUNDS
        ).values()
    return Measured(
        note=(
            f"Latency: processor time for one example on one thread, median of "
            f"{ROUNDS} rounds in turn, {platform.system()} {platform.machine()}."
        ),
        dense=replace(dense, seconds=first.seconds),
        seconds={n: t.seconds for n, t in zip(small, others, strict=True)},
        layers={n: layer_costs(whole, model, inputs) for n, model in small.items()},
        blocks=diagram(whole, inputs),
        small_blocks={n: diagram(model, inputs) for n, model in small.items()},
    )


def _check_runs(name: str, model: nn.Module, inputs: Tensor) -> None:
    """Refuse networks of another task: they cannot be timed side by side."""
    try:
        with torch.inference_mode():
            model(inputs)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        raise ArgumentError(
            f"the network of `{name}` does not take the inputs of the first run. "
            "Write a report for each task."
        ) from error

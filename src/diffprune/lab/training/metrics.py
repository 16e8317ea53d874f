"""Measure a model in training: errors, widths and costs, per epoch and at the end."""

from typing import Any

import torch
from torch import Tensor, nn

from diffprune._pruner import Pruner
from diffprune.gates import Gate
from diffprune.lab.runs.records import Epoch, Outcome, Widths
from diffprune.lab.training.progress import Progress
from diffprune.lab.training.task import Loader, Task


@torch.no_grad()
def error_rate(model: nn.Module, task: Task, loader: Loader) -> float:
    """Mean error over all examples, in percent."""
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    errors = [
        task.error(model(inputs.to(device)), targets.to(device))
        for inputs, targets in loader
    ]
    model.train(was_training)
    return 100 * torch.cat(errors).mean(dtype=torch.float64).item()


def measure_epoch(
    pruner: Pruner[Any], task: Task, progress: Progress, *, lr: float
) -> Epoch:
    """Everything there is to know after the last batch of an epoch."""
    shape, gates = pruner.shape(), pruner.gates
    macs = shape.macs // num_examples(pruner)
    return Epoch(
        number=progress.epoch + 1,
        loss=progress.loss / progress.batches,
        train_error=100 * progress.error / progress.examples,
        validation_error=_validation_error(pruner.model, task),
        test_error=error_rate(pruner.model, task, task.test),
        raw=open_units(pruner),
        effective={name: _num_connected(gate) for name, gate in gates.items()},
        parameters=shape.parameters,
        macs=macs,
        # Gradients of inputs and of weights cost as much as the outputs, each.
        macs_per_step=3 * macs * progress.examples // progress.batches,
        seconds=round(progress.seconds, 3),
        processor_seconds=round(progress.processor_seconds, 3),
        steps=progress.batches,
        lr=lr,
        prob_open={name: _rounded(gate.prob_open()) for name, gate in gates.items()},
    )


def measure_outcome(
    pruner: Pruner[Any], task: Task, raw: Widths, *, seconds: float
) -> Outcome:
    """What a finalized pruner leaves; `raw` are the units that were open before."""
    left = pruner.history[-1] if pruner.history else pruner.dense
    return Outcome(
        raw=raw,
        effective=left.units,
        parameters=left.parameters,
        macs=left.macs // num_examples(pruner),
        validation_error=_validation_error(pruner.model, task),
        test_error=error_rate(pruner.model, task, task.test),
        seconds=round(seconds, 1),
    )


def open_units(pruner: Pruner[Any]) -> dict[str, int]:
    """Open units of every gate."""
    return {name: int(gate.is_open().sum()) for name, gate in pruner.gates.items()}


def num_examples(pruner: Pruner[Any]) -> int:
    """Examples in the batch that multiply-adds are counted for."""
    inputs = pruner.example_inputs
    assert isinstance(inputs, Tensor)  # noqa: S101 - the loop made it
    return len(inputs)


def _validation_error(model: nn.Module, task: Task) -> float | None:
    return None if task.validation is None else error_rate(model, task, task.validation)


def _num_connected(gate: Gate) -> int:
    is_open = gate.is_open()
    return int((is_open if gate.present is None else is_open[gate.present]).sum())


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values.tolist()]

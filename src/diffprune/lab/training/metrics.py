"""Measure a model in training: errors, widths and costs, per epoch and at the end."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from diffprune._graph import mode
from diffprune.errors import ArgumentError
from diffprune.gates import BaseGate, Gate, GateLike
from diffprune.lab.runs.records import Epoch, Outcome, Widths
from diffprune.lab.training.no_pruning import Trainable
from diffprune.lab.training.progress import Progress
from diffprune.lab.training.task import Loader, Task, check_pair, errors_of, outputs_of


class ErrorRate(NamedTuple):
    """A mean error in percent, and of how many examples.

    Their number says how certain the mean is if each is right or wrong. Where an
    example can be partly wrong, as pixels of an image are, it is zero: unknown.
    """

    percent: float
    examples: int


@torch.no_grad()
def error_rate(model: nn.Module, task: Task, loader: Loader) -> ErrorRate:
    """Mean error over all examples, in eval mode.

    Raises:
        ArgumentError: If the data or the error of the task cannot be used.
    """
    device = next(model.parameters()).device
    with mode(model, training=False):
        batches = [
            errors_of(task, outputs_of(model, inputs.to(device)), targets.to(device))
            for inputs, targets in map(check_pair, loader)
        ]
    errors = torch.cat([batch.flatten() for batch in batches or [torch.zeros(0)]])
    if not len(errors):
        raise ArgumentError(
            "the task has yielded nothing to measure an error on; its data must begin "
            "anew whenever it is gone through."
        )
    percent = 100 * errors.mean(dtype=torch.float64).item()
    is_whole = all(batch.ndim == 1 for batch in batches)
    is_counted = is_whole and bool(((errors == 0) | (errors == 1)).all())
    return ErrorRate(percent, len(errors) if is_counted else 0)


def measure_epoch(
    pruner: Trainable, task: Task, progress: Progress, *, lr: float
) -> Epoch:
    """Everything there is to know after the last batch of an epoch.

    Raises:
        ArgumentError: If there was none.
    """
    if not progress.batches:
        raise ArgumentError(
            f"the task has yielded no batch to train on in epoch {progress.epoch + 1}; "
            "its data must begin anew whenever it is gone through."
        )
    shape = pruner.shape()
    macs = shape.macs // num_examples(pruner)
    test = error_rate(pruner.model, task, task.test)
    return Epoch(
        number=progress.epoch + 1,
        loss=progress.loss / progress.batches,
        train_error=100 * progress.error / max(1, progress.errors),
        validation_error=_validation_error(pruner.model, task),
        test_error=test.percent,
        parameters=shape.parameters,
        macs=macs,
        # Gradients of inputs and of weights cost as much as the outputs, each.
        macs_per_step=3 * macs * progress.examples // progress.batches,
        seconds=round(progress.seconds, 3),
        processor_seconds=round(progress.processor_seconds, 3),
        steps=progress.batches,
        lr=lr,
        test_examples=test.examples,
        **gate_numbers(pruner),
    )


def measure_outcome(
    pruner: Trainable, task: Task, raw: Widths, *, seconds: float
) -> Outcome:
    """What a finalized pruner leaves; `raw` are the units that were open before."""
    test = error_rate(pruner.model, task, task.test)
    return make_outcome(
        pruner,
        raw,
        test,
        validation_error=_validation_error(pruner.model, task),
        seconds=seconds,
    )


def make_outcome(
    pruner: Trainable,
    raw: Widths,
    test: ErrorRate,
    *,
    validation_error: float | None,
    seconds: float,
) -> Outcome:
    """What a finalized pruner leaves, with errors that were measured elsewhere."""
    left = pruner.history[-1] if pruner.history else pruner.dense
    return Outcome(
        raw=raw,
        effective=left.units,
        parameters=left.parameters,
        macs=left.macs // num_examples(pruner),
        validation_error=validation_error,
        test_error=test.percent,
        seconds=round(seconds, 1),
        test_examples=test.examples,
    )


def open_units(pruner: Trainable) -> dict[str, int]:
    """Open units of every gate."""
    return {name: int(gate.is_open().sum()) for name, gate in pruner.gates.items()}


def gate_numbers(pruner: Trainable) -> dict[str, Any]:
    """What the record of an epoch says about every gate."""
    gates = pruner.gates
    return {
        "raw": open_units(pruner),
        "effective": {name: _num_connected(gate) for name, gate in gates.items()},
        "prob_open": {
            name: _rounded(gate.prob_open())
            for name, gate in gates.items()
            if isinstance(gate, Gate)
        },
        "worth": {
            name: float(f"{float(units.mean()):.4g}")
            for name, units in pruner.worth.items()
            if bool(units.any())
        },
    }


def num_examples(pruner: Trainable) -> int:
    """Examples in the batch that multiply-adds are counted for."""
    inputs = pruner.example_inputs
    if isinstance(inputs, Tensor):
        return len(inputs)
    values = inputs.values() if isinstance(inputs, Mapping) else inputs
    return next(len(value) for value in values if isinstance(value, Tensor))


def _validation_error(model: nn.Module, task: Task) -> float | None:
    if task.validation is None:
        return None
    return error_rate(model, task, task.validation).percent


def _num_connected(gate: GateLike) -> int:
    is_open = gate.is_open()
    index = gate.index if isinstance(gate, BaseGate) else None
    return int((is_open if index is None or index.ndim > 1 else is_open[index]).sum())


def _rounded(values: Tensor) -> list[float]:
    return [round(value, 4) for value in values.tolist()]

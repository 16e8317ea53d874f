"""Whether something else computes what a model does. Knows no file formats."""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor, nn

from diffprune._export.dynamic_batch import batch_size, resized, tensor_leaves
from diffprune._graph.trace import ExampleInputs, call_arguments, mode
from diffprune.errors import ExportError

Run: TypeAlias = Callable[[ExampleInputs], Sequence[Tensor]]
"""Takes inputs as a model does, returns the tensors that it would."""

_TOLERANCE: Final = {torch.float64: 1e-8, torch.float32: 1e-4}
_COARSE_TOLERANCE: Final = 2e-2


def check_same(
    model: nn.Module, run: Run, inputs: ExampleInputs, batch_dim: int | None
) -> None:
    """Compare with the model in eval mode: on the inputs, on one example, on one more.

    Raises:
        ExportError: If an output differs, relative to its largest entry.
    """
    for trial in _trials(inputs, batch_dim):
        expected = model_outputs(model, trial)
        shapes = ", ".join(str(tuple(t.shape)) for t in tensor_leaves(trial))
        try:
            actual = run(trial)
        except Exception as error:
            raise ExportError(
                f"what was exported does not run on inputs of shape {shapes}: {error}\n"
                "If the batch size has to be fixed, pass `batch_dim=None`. Nothing was "
                "written."
            ) from error
        _compare(expected, actual, shapes)


def model_outputs(model: nn.Module, inputs: ExampleInputs) -> list[Tensor]:
    """All tensors a model returns in eval mode, flattened."""
    args, kwargs = call_arguments(inputs)
    with mode(model, training=False), torch.no_grad():
        return tensor_leaves(model(*args, **kwargs))


def _trials(inputs: ExampleInputs, batch_dim: int | None) -> list[Any]:
    if batch_dim is None:
        return [inputs]
    sizes = dict.fromkeys((size := batch_size(inputs, batch_dim), 1, size + 1))
    return [resized(inputs, batch_dim, size) for size in sizes]


def _compare(expected: list[Tensor], actual: Sequence[Tensor], shapes: str) -> None:
    if len(expected) != len(actual):
        raise ExportError(
            f"what was exported returns {len(actual)} tensors, the model "
            f"{len(expected)}. Nothing was written."
        )
    for one, other in zip(expected, actual, strict=True):
        finite = one[one.isfinite()].abs()
        largest = float(finite.max()) if finite.numel() else 0.0
        allowed = _TOLERANCE.get(one.dtype, _COARSE_TOLERANCE) * largest
        try:
            torch.testing.assert_close(
                other.cpu(), one.cpu(), rtol=0.0, atol=allowed, equal_nan=True
            )
        except AssertionError as error:
            raise ExportError(
                f"what was exported computes something else on inputs of shape "
                f"{shapes}: {error}\nNothing was written."
            ) from error

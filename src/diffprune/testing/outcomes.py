"""Run a model for a law, and compare two results to rounding or bit for bit.

Written apart from the comparison that certifies removals, so that one can find fault
with the other.
"""

import copy
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils import _pytree as pytree

from diffprune._core.copying import copied
from diffprune._core.randomness import seed_torch_, torch_forked
from diffprune._graph import ExampleInputs, call_arguments

_RANDOM: Final = (_DropoutNd, nn.RReLU)
_ROUNDING: Final = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 1e-2}
_ROUGHEST: Final = 1e-1


def call(model: nn.Module, inputs: ExampleInputs) -> Any:  # noqa: ANN401 - as the model
    """What the model returns for a tensor, a tuple, or a dict of keyword arguments."""
    args, kwargs = call_arguments(inputs)
    return model(*args, **kwargs)


def returned(
    model: nn.Module, inputs: ExampleInputs, *, training: bool = False, seed: int = 0
) -> list[Any]:
    """What a copy of the model returns, flattened; layers that draw are in eval mode.

    A wide layer draws more random numbers than a narrow one, so the two could not be
    compared in train mode if dropout were on.
    """
    trial = copied(model).train(training)
    for module in trial.modules():
        if isinstance(module, _RANDOM):
            module.eval()
        elif isinstance(module, nn.MultiheadAttention | nn.RNNBase):
            module.dropout = 0.0
    with torch.no_grad(), torch_forked():
        seed_torch_(seed)
        return pytree.tree_leaves(call(trial, copy.deepcopy(inputs)))


def is_deterministic(
    model: nn.Module, inputs: ExampleInputs, *, training: bool = False
) -> bool:
    """Whether two runs with different seeds return the same."""
    one, other = (
        returned(model, inputs, training=training, seed=seed) for seed in (0, 1)
    )
    return all(map(is_equal, one, other))


def other_inputs(inputs: ExampleInputs, *, seed: int = 0) -> Any:  # noqa: ANN401
    """Inputs of the same kind with other values: numbers of the same mean and spread.

    Integers and booleans change places, so that an index stays a valid index.
    """
    draw = torch.Generator().manual_seed(seed)

    def redrawn(x: Tensor) -> Tensor:
        if x.is_floating_point() and x.isfinite().all() and x.numel() > 1:
            noise = torch.randn(x.shape, generator=draw, dtype=torch.float64)
            return (noise.to(x) * (x.std() + 0.1) + x.mean()).to(x.dtype)
        order = torch.randperm(x.numel(), generator=draw).to(x.device)
        return x.flatten()[order].view(x.shape)

    return pytree.tree_map_only(Tensor, redrawn, inputs)


def tolerance(model: nn.Module) -> float:
    """How far outputs of the model may differ by rounding, at its lowest precision."""
    tensors = (*model.parameters(), *model.buffers())
    types = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    return max((_ROUNDING.get(one, _ROUGHEST) for one in types), default=1e-10)


def is_equal(one: object, other: object) -> bool:
    """Bit for bit, NaN like NaN."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        return bool(((one == other) | (one.isnan() & other.isnan())).all())
    return one == other


def assert_close(actual: object, expected: object, *, what: str, atol: float) -> None:
    """Raise unless nested results agree.

    Numbers of a tensor may differ by `atol`, or by that part of its largest number;
    integers have to be equal.
    """
    (found, shape), (wanted, like) = map(pytree.tree_flatten, (actual, expected))
    if shape != like:
        raise AssertionError(f"{what}: {shape}, where {like} was expected")
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(
            one,
            other,
            rtol=0,
            atol=_allowed(other, atol),
            equal_nan=True,
            msg=lambda m: f"{what}: {m}",
        )


def _allowed(expected: object, atol: float) -> float:
    if not isinstance(expected, Tensor):
        return atol
    if not (expected.is_floating_point() or expected.is_complex()):
        return 0.0
    numbers = expected.detach()[expected.isfinite()].abs()
    return atol * max(1.0, float(numbers.max())) if numbers.numel() else atol


def assert_same_state(
    actual: Mapping[str, Tensor], expected: Mapping[str, Tensor], *, what: str
) -> None:
    """Raise unless the names are the same and every tensor is, bit for bit."""
    if list(actual) != list(expected):
        differ = sorted(set(actual) ^ set(expected)) or "their order"
        raise AssertionError(f"{what}: the names are others: {differ}")
    for name, tensor in expected.items():
        if not is_equal(actual[name], tensor):
            raise AssertionError(f"{what}: `{name}` is another tensor")

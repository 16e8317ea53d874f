"""What a model returns, and how far two returns are apart. Knows no groups or plans."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from diffprune._graph.trace import ExampleInputs, call_arguments, mode

TOLERANCE: Final = {torch.float64: 1e-10, torch.float32: 1e-5}
_COARSE_TOLERANCE: Final = 1e-2


class Gap(NamedTuple):
    """How far two tensors are apart: at most, and relative to the largest entry."""

    absolute: float
    relative: float


_FAR: Final = Gap(torch.inf, torch.inf)


def outputs(model: nn.Module, inputs: ExampleInputs, *, seed: int = 0) -> list[Tensor]:
    """All tensors and numbers the model returns in eval mode, flattened."""
    args, kwargs = call_arguments(inputs)
    with (
        mode(model, training=False),
        torch.no_grad(),
        torch.random.fork_rng(devices=[]),
    ):
        torch.manual_seed(seed)
        return tensors(model(*args, **kwargs))


def tensors(tree: object) -> list[Tensor]:
    """All tensors and numbers in nested lists, tuples and dicts."""
    leaves = pytree.tree_leaves(tree)
    return [
        torch.as_tensor(leaf)
        for leaf in leaves
        if isinstance(leaf, Tensor | bool | int | float)
    ]


def largest_gap(expected: Sequence[Tensor], actual: Sequence[Tensor]) -> Gap:
    """The largest gap of any pair; infinite if there are not equally many."""
    if len(expected) != len(actual):
        return _FAR
    gaps = [gap(*pair) for pair in zip(expected, actual, strict=True)]
    return Gap(*(max(column) for column in zip(Gap(0.0, 0.0), *gaps, strict=True)))


def gap(expected: Tensor, actual: Tensor) -> Gap:
    """How far two tensors are apart.

    Other shapes or types, and other integers, are infinitely far; NaN equals NaN.

    Examples:
        >>> gap(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]))
        Gap(absolute=0.5, relative=0.25)
    """
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        return _FAR
    equal = (expected == actual) | (expected.isnan() & actual.isnan())
    if equal.all():
        return Gap(0.0, 0.0)
    if not (expected.is_floating_point() or expected.is_complex()):
        return _FAR
    wide = torch.complex128 if expected.is_complex() else torch.float64
    differences = (expected.to(wide) - actual.to(wide))[~equal].abs()
    absolute = float(differences.nan_to_num(nan=torch.inf, posinf=torch.inf).max())
    return Gap(absolute, absolute / (_scale(expected) or 1.0))


def _scale(tensor: Tensor) -> float:
    finite = tensor[tensor.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


def tolerance(dtype: torch.dtype) -> float:
    """How far apart equal computations in this arithmetic may be, relatively."""
    return TOLERANCE.get(dtype, _COARSE_TOLERANCE)


def coarsest_arithmetic(model: nn.Module, inputs: ExampleInputs) -> torch.dtype:
    """The least precise floating-point type of any result inside the model.

    A model in double precision may still cast to float32 here and there.
    """
    with _SeenTypes() as seen:
        outputs(model, inputs)
    return max(seen.dtypes, key=lambda dtype: torch.finfo(dtype).eps)


class _SeenTypes(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.dtypes = {torch.float64}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: object,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the op returns
        del types
        result = func(*args, **(kwargs or {}))
        found = (
            leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)
        )
        self.dtypes |= {leaf.dtype for leaf in found if leaf.is_floating_point()}
        return result


def doubled(inputs: ExampleInputs) -> Any:  # noqa: ANN401 - as nested as given
    """The inputs with every floating-point tensor in double precision."""

    def double(leaf: object) -> object:
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            return leaf.double()
        return leaf

    return pytree.tree_map(double, inputs)

"""Compare a smaller model with the masked original. Knows no plans' reasons."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from diffprune._typing import Bool
from diffprune.errors import RemovalError
from diffprune.graph import Groups
from diffprune.graph.axes import mask as axis_mask
from diffprune.graph.trace import ExampleInputs, call_arguments, mode
from diffprune.surgery.plan import Certificate

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}


def mask(
    model: nn.Module, groups: Groups, keep: Mapping[str, Bool[Tensor, " units"]]
) -> nn.Module:
    """Return a copy of the model with every parameter slice of removed units zero."""
    masked = copy.deepcopy(model)
    tensors = dict(masked.named_parameters(remove_duplicate=False))
    atoms = {groups[name].atom: kept.cpu() for name, kept in keep.items()}
    with torch.no_grad():
        for place in {place for name in keep for place in groups[name].axes}:
            if not place.is_parameter or place.is_direction:
                continue
            tensor = tensors[place.tensor]
            removed = ~axis_mask(place.axis, atoms)
            tensor.index_fill_(
                place.dim, removed.nonzero().flatten().to(tensor.device), 0
            )
    return masked


def certify(
    original: nn.Module, small: nn.Module, inputs: ExampleInputs
) -> Certificate:
    """Run both in eval mode and compare.

    In double precision where the model allows it, so that a true difference cannot
    hide behind rounding.

    Raises:
        RemovalError: If they differ, or the smaller one does not run.
    """
    try:
        return _certify(_double(original), _double(small), _double_inputs(inputs))
    except (RuntimeError, TypeError, ValueError):
        return _certify(original, small, inputs)


def _certify(
    original: nn.Module, small: nn.Module, inputs: ExampleInputs
) -> Certificate:
    expected = _outputs(original, inputs)
    try:
        actual = _outputs(small, inputs)
    except Exception as error:
        raise RemovalError(
            f"the smaller model does not run: {type(error).__name__}: {error}\n"
            "Its forward probably holds a width that diffprune could not see."
        ) from error
    return _compare(expected, actual)


def _compare(expected: list[Tensor], actual: list[Tensor]) -> Certificate:
    pairs = zip(expected, actual, strict=True)
    differences = [_difference(one, other) for one, other in pairs if one.numel()]
    absolute = max((difference for difference, _ in differences), default=0.0)
    relative = max(
        (
            difference / scale if scale else difference
            for difference, scale in differences
        ),
        default=0.0,
    )
    dtype = expected[0].dtype if expected else torch.float32
    certificate = Certificate(absolute, relative, str(dtype).removeprefix("torch."))
    if not relative <= TOLERANCE.get(dtype, 1e-2):
        raise RemovalError(
            f"the smaller model computes something else: {certificate}. Nothing was "
            "changed."
        )
    return certificate


def _difference(expected: Tensor, actual: Tensor) -> tuple[float, float]:
    if expected.shape != actual.shape:
        return float("inf"), 1.0
    expected, actual = expected.double(), actual.double()
    same = torch.equal(expected.isnan(), actual.isnan())
    difference = (expected - actual).nan_to_num().abs().max() if same else torch.inf
    return float(difference), float(expected.nan_to_num().abs().max())


def _outputs(model: nn.Module, inputs: ExampleInputs) -> list[Tensor]:
    args, kwargs = call_arguments(inputs)
    with (
        mode(model, training=False),
        torch.no_grad(),
        torch.random.fork_rng(devices=[]),
    ):
        torch.manual_seed(0)
        out = model(*args, **kwargs)
    leaves = pytree.tree_leaves(out)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def _double(model: nn.Module) -> nn.Module:
    return copy.deepcopy(model).double()


def _double_inputs(inputs: ExampleInputs) -> Any:  # noqa: ANN401 - as nested as given
    def double(leaf: object) -> object:
        is_float = isinstance(leaf, Tensor) and leaf.is_floating_point()
        return leaf.double() if is_float else leaf

    return pytree.tree_map(double, inputs)

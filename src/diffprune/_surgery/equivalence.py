"""Certify that a smaller model computes what the masked original does.

Two models and example inputs go in; a `Certificate` comes out, or a `RemovalError` that
says where the two part.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar, final

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from diffprune._core.types import Bool
from diffprune._graph import Atom, ExampleInputs, Groups, mask as axis_mask
from diffprune._surgery.apply import named_tensors
from diffprune._surgery.compare import (
    Certificate,
    Comparison,
    Outputs,
    arithmetic,
    compare,
    outputs,
    tolerance,
)
from diffprune._surgery.diagnose import (
    Layout,
    Record,
    changed_number,
    first_disagreement,
    record,
)
from diffprune.errors import RemovalError

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def mask(
    model: ModuleT, groups: Groups, keep: Mapping[str, Bool[Tensor, " units"]]
) -> ModuleT:
    """Return a copy of the model with every parameter slice of removed units zero.

    Args:
        model: Left as it is.
        groups: Its groups.
        keep: For each group to mask, by name, which of its units stay.
    """
    masked = copy.deepcopy(model)
    mask_(masked, groups, {groups[name].atom: kept for name, kept in keep.items()})
    return masked


@torch.no_grad()
def mask_(
    model: nn.Module, groups: Groups, keep: Mapping[Atom, Bool[Tensor, " units"]]
) -> None:
    """Set every parameter slice of removed units to zero, in place."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    masks = {atom: kept.cpu() for atom, kept in keep.items()}
    for place in {p for group in groups if group.atom in masks for p in group.axes}:
        if place.is_parameter and not place.is_direction:
            parameter = parameters[place.tensor]
            removed = (~axis_mask(place.axis, masks)).nonzero().flatten()
            parameter.index_fill_(place.dim, removed.to(parameter.device), 0)


def certify(
    original: nn.Module,
    small: nn.Module,
    inputs: ExampleInputs,
    *,
    kept: Callable[[], Layout] = dict,
) -> Certificate:
    """Run copies of both in eval mode and compare what they return.

    In double precision where the original runs in it, so that a true difference cannot
    hide behind rounding. Integers have to be equal.

    Args:
        original: The masked original.
        small: The model that should compute the same.
        inputs: As for `find_groups`.
        kept: Which elements of each module's outputs remain; asked for only to say
            where the two disagree.

    Raises:
        RemovalError: If they differ, or the smaller one does not run.
    """
    fine, other = in_double(original, inputs), copy.deepcopy(small)
    other = other.double() if fine.is_double else other
    found = _compare_models(fine.returned, other, fine.inputs)
    if not found.is_equal:
        _refuse(fine, other, found, kept())
    return found.certificate


@final
class OutputCheck:
    """Whether a model that is changed in place still returns what it returned.

    The model runs once when this is made, and once more for every `certify`; both times
    in its own precision.

    Args:
        model: The model, before it is changed.
        inputs: As for `find_groups`.
    """

    def __init__(self, model: nn.Module, inputs: ExampleInputs) -> None:
        self._model, self._inputs = model, inputs
        self._expected = outputs(model, inputs)
        self._changed: Record | None = None

    def certify(self, model: nn.Module | None = None) -> Certificate:
        """Compare what the model returns now; or what another one does.

        Raises:
            RemovalError: If that is something else, or the model does not run. Undo the
                change, then ask `first_difference` where it happened.
        """
        model = self._model if model is None else model
        found = _compare_models(self._expected, model, self._inputs)
        if found.is_equal:
            return found.certificate
        self._changed = record(model, self._inputs)
        raise RemovalError(
            f"the smaller model computes something else: {found.certificate}."
        )

    def first_difference(self, kept: Layout) -> str:
        """Where the changed model parted from this one; nothing if that is unknown.

        Args:
            kept: Which elements of each module's outputs the changed model has.
        """
        if self._changed is None:
            return ""
        before = record(self._model, self._inputs)
        types = arithmetic(self._model, self._inputs)
        allowed = max(map(tolerance, types), default=0.0)
        where = first_disagreement(before, self._changed, kept, allowed)
        return f" The two part first in `{where}`." if where else ""


def _compare_models(
    expected: Outputs, small: nn.Module, inputs: ExampleInputs
) -> Comparison:
    """Compare, if need be with the tolerance of the arithmetic inside the model."""
    try:
        actual = outputs(small, inputs)
    except Exception as error:
        raise RemovalError(_failure(small, inputs, error)) from error
    found = compare(expected, actual)
    if found.is_equal:
        return found
    return compare(expected, actual, computed_in=arithmetic(small, inputs))


def _failure(small: nn.Module, inputs: ExampleInputs, error: Exception) -> str:
    running = record(small, inputs).running
    where = f"`{running[-1]}`" if running and running[-1] else "the model's own forward"
    return (
        f"the smaller model does not run, it fails in {where}: {type(error).__name__}: "
        f"{error}\nA width is probably fixed there that diffprune could not see; leave "
        "the layer out with `freeze=[...]`. Nothing was changed."
    )


def _refuse(
    fine: "Fine[Any]", small: nn.Module, found: Comparison, kept: Layout
) -> NoReturn:
    original, inputs = fine.model, fine.inputs
    allowed = tolerance(found.dtype)
    again = outputs(original, inputs, seed=1)
    types = [found.dtype] * len(again)
    if not compare(fine.returned, again, computed_in=types).is_equal:
        raise RemovalError(
            "the model returns random numbers in eval mode, so no removal can be "
            "verified. Make it deterministic there; `F.dropout(x, p)` for instance "
            "needs `training=self.training`. Nothing was changed."
        )
    expected, actual = record(original, inputs), record(small, inputs)
    where = first_disagreement(expected, actual, kept, allowed)
    number = changed_number(original, small, inputs)
    raise RemovalError(
        f"the smaller model computes something else"
        f"{f', first in `{where}`' if where else ''}: {found.certificate}."
        f"{f' A width enters the arithmetic: {number}.' if number else ''}"
        "\nNothing was changed; leave the layer out with `freeze=[...]`."
    )


class Fine(NamedTuple, Generic[ModuleT]):
    """A copy of a model, inputs of its precision, and what it returns for them."""

    model: ModuleT
    inputs: Any
    returned: Outputs
    is_double: bool


def in_double(model: ModuleT, inputs: ExampleInputs) -> Fine[ModuleT]:
    """Copy a model, in double precision if it runs in it."""
    fine, fine_inputs = copy.deepcopy(model).double(), doubled(inputs)
    try:
        returned = outputs(fine, fine_inputs)
    except Exception:  # noqa: BLE001 - a layer may raise anything about a dtype
        coarse = copy.deepcopy(model)
        return Fine(coarse, inputs, outputs(coarse, inputs), is_double=False)
    return Fine(fine, fine_inputs, returned, is_double=True)


def doubled(inputs: ExampleInputs) -> Any:  # noqa: ANN401 - as nested as given
    """The inputs with every floating-point tensor in double precision."""

    def double(leaf: object) -> object:
        if isinstance(leaf, Tensor) and leaf.is_floating_point():
            return leaf.double()
        return leaf

    return pytree.tree_map(double, inputs)


def cast_like_(model: nn.Module, like: nn.Module) -> None:
    """Give every tensor the type of its namesake in another model."""
    types = {name: tensor.dtype for name, tensor in named_tensors(like).items()}
    for name, tensor in named_tensors(model).items():
        tensor.data = tensor.data.to(types[name])

"""Certify that a smaller model computes what the masked original does.

Knows how to compare, not how a removal came about.
"""

import copy
from collections.abc import Callable, Mapping
from typing import NamedTuple, NoReturn, TypeVar

import torch
from torch import Tensor, nn

from diffprune._core.types import Bool
from diffprune._graph import Groups
from diffprune._graph.axes import mask as axis_mask
from diffprune._graph.trace import ExampleInputs
from diffprune._surgery.changed_numbers import changed_number
from diffprune._surgery.compare import (
    coarsest_arithmetic,
    largest_gap,
    outputs,
    tolerance,
)
from diffprune._surgery.diagnose import Layout, first_disagreement, record
from diffprune._surgery.plan import Certificate
from diffprune._surgery.precision import in_double
from diffprune.errors import RemovalError

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def mask(
    model: ModuleT, groups: Groups, keep: Mapping[str, Bool[Tensor, " units"]]
) -> ModuleT:
    """Return a copy of the model with every parameter slice of removed units zero."""
    masked = copy.deepcopy(model)
    parameters = dict(masked.named_parameters(remove_duplicate=False))
    atoms = {groups[name].atom: kept.cpu() for name, kept in keep.items()}
    for place in {place for name in keep for place in groups[name].axes}:
        if place.is_parameter and not place.is_direction:
            parameter = parameters[place.tensor].detach()
            removed = (~axis_mask(place.axis, atoms)).nonzero().flatten()
            parameter.index_fill_(place.dim, removed.to(parameter.device), 0)
    return masked


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
    trial = _trial(original, small, inputs)
    try:
        actual = outputs(trial.small, trial.inputs)
    except Exception as error:
        raise RemovalError(_failure(trial, error)) from error
    found = largest_gap(trial.expected, actual)
    dtype = _arithmetic(trial.expected)
    if found.relative > tolerance(dtype):
        dtype = coarsest_arithmetic(trial.original, trial.inputs)
    certificate = Certificate(*found, str(dtype).removeprefix("torch."))
    if found.relative > tolerance(dtype):
        _refuse(trial, certificate, kept(), tolerance(dtype))
    return certificate


class _Trial(NamedTuple):
    """Two models in the same arithmetic, and what the first one returns."""

    original: nn.Module
    small: nn.Module
    inputs: ExampleInputs
    expected: list[Tensor]


def _trial(original: nn.Module, small: nn.Module, inputs: ExampleInputs) -> _Trial:
    fine, copied = in_double(original, inputs), copy.deepcopy(small)
    copied = copied.double() if fine.is_double else copied
    return _Trial(fine.model, copied, fine.inputs, fine.returned)


def _arithmetic(expected: list[Tensor]) -> torch.dtype:
    dtypes = [output.dtype for output in expected if output.is_floating_point()]
    return max(dtypes, key=lambda d: torch.finfo(d).eps, default=torch.float64)


def _failure(trial: _Trial, error: Exception) -> str:
    running = record(trial.small, trial.inputs).running
    where = f"`{running[-1]}`" if running and running[-1] else "the model's own forward"
    return (
        f"the smaller model does not run, it fails in {where}: {type(error).__name__}: "
        f"{error}\nA width is probably fixed there that diffprune could not see; leave "
        "the layer out with `freeze=[...]`. Nothing was changed."
    )


def _refuse(
    trial: _Trial, certificate: Certificate, kept: Layout, allowed: float
) -> NoReturn:
    again = outputs(trial.original, trial.inputs, seed=1)
    if largest_gap(trial.expected, again).relative > allowed:
        raise RemovalError(
            "the model returns random numbers in eval mode, so no removal can be "
            "verified. Make it deterministic there; `F.dropout(x, p)` for instance "
            "needs `training=self.training`. Nothing was changed."
        )
    expected = record(trial.original, trial.inputs)
    actual = record(trial.small, trial.inputs)
    where = first_disagreement(expected, actual, kept, allowed)
    number = changed_number(trial.original, trial.small, trial.inputs)
    raise RemovalError(
        f"the smaller model computes something else"
        f"{f', first in `{where}`' if where else ''}: {certificate}."
        f"{f' A width enters the arithmetic: {number}.' if number else ''}"
        "\nNothing was changed; leave the layer out with `freeze=[...]`."
    )

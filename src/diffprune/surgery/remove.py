"""Remove units from a model: plan, apply, verify. Knows no criterion."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from torch import Tensor, nn

from diffprune._typing import Bool
from diffprune.graph import Groups, find_groups
from diffprune.graph.trace import ExampleInputs
from diffprune.surgery.apply import apply_plan
from diffprune.surgery.plan import Plan, plan_removal
from diffprune.surgery.verify import certify, mask

ModuleT = TypeVar("ModuleT", bound=nn.Module)


@dataclass(frozen=True)
class Removal(Generic[ModuleT]):
    """A smaller model, and the plan, with its certificate, that led to it."""

    model: ModuleT
    plan: Plan


def remove(
    model: ModuleT,
    example_inputs: ExampleInputs,
    keep: Mapping[str, Bool[Tensor, " units"]],
    **options: Any,  # noqa: ANN401 - those of find_groups
) -> ModuleT:
    """Return a smaller model of the same class without the units that are not kept.

    It computes what the original would with all parameters of those units set to zero,
    which is checked on the example inputs before anything is returned.

    Args:
        model: Left as it is.
        example_inputs: As for `find_groups`.
        keep: For each group to cut, by name, a boolean mask over its units.
        options: Passed to `find_groups`.

    Raises:
        RemovalError: If the smaller model would compute something else.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
        >>> keep = {"0": torch.tensor([True, False, True, True, False])}
        >>> remove(model, torch.rand(2, 3), keep)[0]
        Linear(in_features=3, out_features=3, bias=True)
    """
    groups = find_groups(model, example_inputs, **options)
    return removal(model, example_inputs, groups, keep).model


def removal(
    model: ModuleT,
    example_inputs: ExampleInputs,
    groups: Groups,
    keep: Mapping[str, Bool[Tensor, " units"]],
) -> Removal[ModuleT]:
    """Like `remove`, with groups found before, and the plan beside the model."""
    plan = plan_removal(groups, keep)
    small = apply_plan(model, plan)
    certificate = certify(mask(model, groups, keep), small, example_inputs)
    return Removal(small, replace(plan, certificate=certificate))

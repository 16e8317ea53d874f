"""Set to zero what a removal would remove: the reference that it is compared with."""

from collections.abc import Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn

from diffprune._core.copying import copied
from diffprune._core.door import door
from diffprune._core.types import Bool
from diffprune._graph import Atom, Groups, mask as axis_mask
from diffprune._surgery.keep_masks import check_same_model, checked

ModuleT = TypeVar("ModuleT", bound=nn.Module)


@door
def mask(
    model: ModuleT, groups: Groups, keep: Mapping[str, Bool[Tensor, " units"]]
) -> ModuleT:
    """Return a copy of the model with every parameter slice of removed units zero.

    Args:
        model: Left as it is.
        groups: Its groups.
        keep: For each group to mask, by name, which of its units stay.

    Raises:
        UnknownNameError: If a name is not that of a group.
        ArgumentError: If the groups are those of another model, or a mask does not fit.
    """
    check_same_model(model, groups)
    keep = checked(groups, keep, may_vanish=True)
    masked = copied(model)
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

"""Masks over the units of groups: checked, and widened to widths hardware likes.

A mask says of every unit whether it stays.
"""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from diffprune._core.modules import named_tensors
from diffprune._core.types import Bool, Float
from diffprune._graph import Groups, PruneGroup, size, unknown_group
from diffprune.errors import ArgumentError, UnknownNameError


def checked(
    groups: Groups,
    keep: Mapping[str, Bool[Tensor, " units"]],
    *,
    round_to: int = 1,
    min_units: int = 1,
    scores: Mapping[str, Float[Tensor, " units"]] | None = None,
    may_vanish: bool = False,
) -> dict[str, Bool[Tensor, " units"]]:
    """Return the masks on the CPU, each keeping as many units as asked for.

    Args:
        groups: From `find_groups`.
        keep: For each group to cut, by name, a mask over its units.
        round_to: Every group keeps a multiple of so many units.
        min_units: Every group keeps at least so many units.
        scores: By group, what each unit is worth. Of the removed units the best ones
            are kept after all where widths have to grow; without scores the first.
        may_vanish: Whether a mask may keep nothing, unless `min_units` says otherwise.

    Raises:
        UnknownNameError: If a name is not that of a group.
        ArgumentError: If a mask or score does not fit its group, or a mask keeps
            nothing.
    """
    if strays := set(scores or {}) - set(keep):
        raise UnknownNameError(
            f"scores: `{min(strays)}` has scores but no mask in `keep`."
        )
    devices = {torch.device("cpu"), *groups.solution.traces[0].devices}
    sizes, widened = groups.sizes, dict[str, Tensor]()
    for name, mask in keep.items():
        if name not in sizes:
            raise UnknownNameError(f"keep: {unknown_group(name, groups)}")
        _check_mask(groups[name], mask, devices)
        if not (may_vanish or mask.any()):
            raise nothing_left(groups[name])
        score = _score(groups[name], (scores or {}).get(name))
        width = _width(int(mask.sum()), round_to, min_units)
        widened[name] = widen(mask.cpu(), width, score)
    return widened


def check_same_model(model: nn.Module, groups: Groups) -> None:
    """Refuse groups that were found in another model, or before this one was cut.

    Raises:
        ArgumentError: If the model lacks one of their tensors, or has another shape.
    """
    tensors = named_tensors(model)
    for name, axes in groups.tensors.items():
        expected = tuple(map(size, axes))
        found = tuple(tensors[name].shape) if name in tensors else "nothing"
        if found != expected:
            raise ArgumentError(
                f"these groups are not those of this model: it has {found} for "
                f"`{name}`, where they have {expected}.\nFind them again: "
                "`dp.find_groups(model, example_inputs)`."
            )


def at_least_one(keep: Bool[Tensor, " units"]) -> Bool[Tensor, " units"]:
    """Keep the first unit if none is kept: a layer without units cannot run."""
    return keep if keep.any() else torch.arange(len(keep)) == 0


def widen(
    mask: Bool[Tensor, " units"], width: int, score: Float[Tensor, " units"]
) -> Bool[Tensor, " units"]:
    """Keep the best removed units too, until `width` units stay or there are no more.

    Examples:
        >>> widen(torch.tensor([False, True, False]), 2, torch.tensor([0.1, 0.2, 0.3]))
        tensor([False,  True,  True])
    """
    missing = max(0, width - int(mask.sum()))
    removed = (~mask).nonzero().flatten()
    best = score[removed].argsort(descending=True, stable=True)[:missing]
    return mask.index_fill(0, removed[best], value=True)


def _width(kept: int, round_to: int, min_units: int) -> int:
    """How many units to keep; none stay none, unless several are asked for."""
    least = kept if min_units == 1 else max(kept, min_units)
    return -(-least // round_to) * round_to


def _check_mask(
    group: PruneGroup, mask: Bool[Tensor, " units"], devices: Collection[torch.device]
) -> None:
    if not _is_vector(mask, group.size) or mask.dtype != torch.bool:
        raise ArgumentError(
            f"keep: the mask for `{group.name}` must be a boolean vector of "
            f"{group.size} units, True where a unit stays; got {_described(mask)}."
        )
    if mask.device not in devices:
        raise ArgumentError(
            f"keep: the mask for `{group.name}` is on {mask.device}, where nothing of "
            f"the model is. Make it on {' or '.join(sorted(map(str, devices)))}."
        )


def nothing_left(group: PruneGroup) -> ArgumentError:
    """The error for a group that was to be cut to nothing, and cannot be."""
    return ArgumentError(
        f"keep: the mask for `{group.name}` keeps none of its {group.size} units, "
        "which would disconnect the model. Keep at least one."
    )


def _score(
    group: PruneGroup, score: Float[Tensor, " units"] | None
) -> Float[Tensor, " units"]:
    if score is None:
        return torch.zeros(group.size)
    is_number = _is_vector(score, group.size) and not score.is_complex()
    if not is_number or score.is_meta or bool(score.isnan().any()):
        raise ArgumentError(
            f"the scores for `{group.name}` must be a vector of {group.size} numbers, "
            f"one per unit and none of them NaN; got {_described(score)}."
        )
    return score.detach().cpu()


def _is_vector(vector: object, length: int) -> bool:
    return isinstance(vector, Tensor) and vector.shape == (length,)


def _described(given: object) -> str:
    if isinstance(given, Tensor):
        return f"{given.dtype} of shape {tuple(given.shape)} on {given.device}"
    return f"{type(given).__name__}, not a tensor"

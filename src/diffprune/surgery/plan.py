"""What a removal will do, as data. Knows names and indices, no tensors.

A plan can be printed, compared, written as JSON and composed with the next one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from diffprune._typing import Bool
from diffprune.errors import ArgumentError
from diffprune.graph import Groups, PruneGroup
from diffprune.graph.axes import Atom, count, mask

Indices = tuple[int, ...]
VERSION: Final = 1


@dataclass(frozen=True)
class Certificate:
    """How far the smaller model is from the masked original, on the example inputs.

    Attributes:
        max_absolute: Largest difference of any output.
        max_relative: The same, relative to the largest output.
        dtype: Arithmetic the comparison was made in.
    """

    max_absolute: float
    max_relative: float
    dtype: str

    def __str__(self) -> str:
        return (
            f"outputs differ by at most {self.max_absolute:.1e} absolute, "
            f"{self.max_relative:.1e} relative ({self.dtype})"
        )


@dataclass(frozen=True)
class Plan:
    """Which indices of which dimensions survive.

    Attributes:
        kept: Kept units of every group that loses some, by group name.
        tensors: For each tensor that shrinks, the kept indices per dimension.
        attributes: New values of module attributes, by dotted name.
        certificate: Filled in once the removal has been verified.
    """

    kept: Mapping[str, Indices]
    tensors: Mapping[str, Mapping[int, Indices]]
    attributes: Mapping[str, int]
    certificate: Certificate | None = field(default=None, compare=False)

    def __str__(self) -> str:
        lines = [f"{name}: keep {len(kept)} units" for name, kept in self.kept.items()]
        if self.certificate is not None:
            lines.append(str(self.certificate))
        return "\n".join(lines or ["nothing to remove"])

    def then(self, later: "Plan") -> "Plan":
        """Return the one plan that does what this one and then `later` do."""
        tensors = {name: dict(dims) for name, dims in self.tensors.items()}
        for name, dims in later.tensors.items():
            mine = tensors.setdefault(name, {})
            for dim, kept in dims.items():
                mine[dim] = _select(mine[dim], kept) if dim in mine else kept
        kept_units = dict(self.kept)
        for name, kept in later.kept.items():
            mine_kept = kept_units.get(name)
            kept_units[name] = kept if mine_kept is None else _select(mine_kept, kept)
        return Plan(kept_units, tensors, {**self.attributes, **later.attributes})

    def to_json(self) -> str:
        """Write as JSON; `from_json` reads it back."""
        tensors = {
            name: {str(dim): list(kept) for dim, kept in dims.items()}
            for name, dims in self.tensors.items()
        }
        certificate = None if self.certificate is None else vars(self.certificate)
        return json.dumps(
            {
                "version": VERSION,
                "kept": {name: list(kept) for name, kept in self.kept.items()},
                "tensors": tensors,
                "attributes": dict(self.attributes),
                "certificate": certificate,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """Read what `to_json` wrote.

        Raises:
            ArgumentError: If the text is not a plan, or one of a later version.
        """
        try:
            return cls._from_dict(json.loads(text))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ArgumentError(f"this is not a removal plan: {error!r}") from error

    @classmethod
    def _from_dict(cls, data: dict[str, Any]) -> "Plan":
        if data["version"] != VERSION:
            raise ArgumentError(
                f"the plan has version {data['version']}, this diffprune reads version "
                f"{VERSION}. Upgrade diffprune to read it."
            )
        certificate = data["certificate"]
        return cls(
            {str(name): _indices(kept) for name, kept in data["kept"].items()},
            {
                str(name): {int(dim): _indices(kept) for dim, kept in dims.items()}
                for name, dims in data["tensors"].items()
            },
            {str(name): int(value) for name, value in data["attributes"].items()},
            None if certificate is None else Certificate(**certificate),
        )


def plan_removal(groups: Groups, keep: Mapping[str, Bool[Tensor, " units"]]) -> Plan:
    """Plan to keep only some units of some groups.

    Args:
        groups: From `find_groups`.
        keep: For each group to cut, by name, a mask over its units.

    Raises:
        UnknownNameError: If a name is not that of a group.
        ArgumentError: If a mask has the wrong length or type, or keeps nothing.
    """
    masks = {groups[name].atom: _check(groups[name], keep[name]) for name in keep}
    masks = {atom: kept for atom, kept in masks.items() if not kept.all()}
    sizes = {atom: int(kept.sum()) for atom, kept in masks.items()}
    kept_units = {
        group.name: _numbers(masks[group.atom])
        for group in groups
        if group.atom in masks
    }
    return Plan(kept_units, _tensors(groups, masks), _attributes(groups, sizes))


def _tensors(
    groups: Groups, masks: Mapping[Atom, Bool[Tensor, " units"]]
) -> dict[str, dict[int, Indices]]:
    planned: dict[str, dict[int, Indices]] = {}
    for group in groups:
        if group.atom not in masks:
            continue
        for place in group.axes:
            dims = planned.setdefault(place.tensor, {})
            if place.dim not in dims:
                dims[place.dim] = _numbers(mask(place.axis, masks))
    return planned


def _attributes(groups: Groups, sizes: Mapping[Atom, int]) -> dict[str, int]:
    resolve = groups.solution.algebra.resolve
    found = {
        str(attribute): int(count(resolve(axis), sizes))
        for attribute, axis in groups.attributes.items()
    }
    before = {str(attribute): attribute.value for attribute in groups.attributes}
    return {name: value for name, value in found.items() if value != before[name]}


def _check(group: PruneGroup, keep: Bool[Tensor, " units"]) -> Bool[Tensor, " units"]:
    if keep.dtype != torch.bool or keep.shape != (group.size,):
        raise ArgumentError(
            f"the mask for `{group.name}` must be a boolean vector of {group.size} "
            f"units, True where a unit stays; got {keep.dtype} of shape "
            f"{tuple(keep.shape)}."
        )
    if not keep.any():
        raise ArgumentError(
            f"the mask for `{group.name}` keeps none of its {group.size} units, which "
            "would disconnect the model. Keep at least one."
        )
    return keep.cpu()


def _numbers(kept: Bool[Tensor, " n"]) -> Indices:
    return tuple(kept.nonzero().flatten().tolist())


def _select(kept: Sequence[int], chosen: Sequence[int]) -> Indices:
    return tuple(kept[i] for i in chosen)


def _indices(numbers: object) -> Indices:
    if not isinstance(numbers, list) or not all(type(n) is int for n in numbers):
        raise TypeError(f"indices must be a list of integers, got {numbers!r}")
    return tuple(numbers)

"""What a removal will do, as data. Knows names and indices, no tensors.

A plan can be printed, compared, written as JSON and composed with the next one.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeVar

from torch import Tensor

from diffprune._core.door import door
from diffprune._core.shown import Shown
from diffprune._core.types import Bool, Count, Float
from diffprune._graph import Atom, Groups, count, mask as axis_mask
from diffprune._surgery.compare import Certificate
from diffprune._surgery.keep_masks import checked
from diffprune._surgery.replacement_modules import Stub
from diffprune.errors import ArgumentError

Indices = tuple[int, ...]
KeyT = TypeVar("KeyT")
ItemT = TypeVar("ItemT")
VERSION: Final = 1
_DIGEST: Final = "digest"


@dataclass(frozen=True)
class Plan:
    """Which indices of which dimensions survive.

    Attributes:
        kept: Kept units of every group that loses some, by group name.
        tensors: For each tensor that shrinks, the kept indices per dimension.
        attributes: New values of module attributes, by dotted name.
        stubs: What takes the place of modules that disappear, by dotted name.
        certificate: Filled in once the removal has been verified.
    """

    kept: Mapping[str, Indices]
    tensors: Mapping[str, Mapping[int, Indices]]
    attributes: Mapping[str, int]
    stubs: Mapping[str, Stub] = field(default_factory=dict[str, Stub])
    certificate: Certificate | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        rows = [(name, f"{len(kept):,}") for name, kept in self.kept.items()]
        rows += [(name, "zeros instead") for name in self.stubs]
        certificate = [] if self.certificate is None else [str(self.certificate)]
        header = ("group", "units kept")
        return Shown([header, *rows], numbers={1}, after=certificate)._repr_html_()

    def __str__(self) -> str:
        lines = [f"{name}: keep {len(kept)} units" for name, kept in self.kept.items()]
        lines += [f"{name}: zeros instead" for name in self.stubs]
        if self.certificate is not None:
            lines.append(str(self.certificate))
        return "\n".join(lines or ["nothing to remove"])

    @door
    def then(self, later: "Plan") -> "Plan":
        """Return the one plan that does what this one and then `later` do.

        Args:
            later: A plan for the model that this one leaves.

        Raises:
            ArgumentError: If `later` keeps what this plan has already removed.
        """
        names = dict.fromkeys((*self.tensors, *later.tensors))
        tensors = {
            name: _compose(
                name, self.tensors.get(name, {}), later.tensors.get(name, {})
            )
            for name in names
        }
        kept = _compose("the groups", self.kept, later.kept)
        both = Plan(kept, tensors, {**self.attributes, **later.attributes}, self.stubs)
        return both.without(later.stubs)

    def without(self, stubs: Mapping[str, Stub]) -> "Plan":
        """Return the plan that puts these in the place of modules, too.

        What it had to say about the insides of those is not needed any more.
        """
        return Plan(
            self.kept,
            _outside(stubs, self.tensors),
            _outside(stubs, self.attributes),
            {**_outside(stubs, self.stubs), **stubs},
        )

    def to_json(self) -> str:
        """Write as JSON, with a digest; `from_json` reads it back."""
        data = json.dumps({"version": VERSION, **asdict(self)})
        return json.dumps({**json.loads(data), _DIGEST: _digest(data)})

    @classmethod
    @door
    def from_json(cls, text: str) -> "Plan":
        """Read what `to_json` wrote; the text may come from anywhere.

        Raises:
            ArgumentError: If the text is damaged or not a plan, or one of a later
                version.
        """
        try:
            data = json.loads(text)
            if data["version"] == VERSION:
                _check_digest(data)
                return _read(data)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as e:
            raise ArgumentError(f"the text is not a removal plan: {e!r}") from e
        raise ArgumentError(
            f"the plan has version {data['version']!r}, this diffprune reads version "
            f"{VERSION}. Upgrade diffprune to read it."
        )


@door
def plan_removal(
    groups: Groups,
    *,
    keep: Mapping[str, Bool[Tensor, " units"]],
    round_to: Count = 1,
    min_units: Count = 1,
    scores: Mapping[str, Float[Tensor, " units"]] | None = None,
) -> Plan:
    """Plan to keep only some units of some groups.

    Args:
        groups: From `find_groups`.
        keep: For each group to cut, by name, a mask over its units.
        round_to: Every cut group keeps a multiple of so many units, or all it has.
        min_units: Every cut group keeps at least so many units, or all it has.
        scores: By group, what each unit is worth: which of the removed units stay after
            all where these two ask for more. Without scores the first ones do.

    Raises:
        UnknownNameError: If a name is not that of a group.
        ArgumentError: If a mask has the wrong length or type, or keeps nothing.

    Examples:
        >>> import torch
        >>> from diffprune import find_groups
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 2))
        >>> groups = find_groups(model, torch.rand(2, 3))
        >>> keep = {"0": torch.tensor([True, False, True, True, False])}
        >>> plan_removal(groups, keep=keep).tensors["1.weight"]
        {1: (0, 2, 3)}
        >>> print(plan_removal(groups, keep=keep, round_to=4))
        0: keep 4 units
    """
    wide = checked(groups, keep, round_to=round_to, min_units=min_units, scores=scores)
    masks = {groups[name].atom: mask for name, mask in wide.items() if not mask.all()}
    kept = {g.name: _numbers(masks[g.atom]) for g in groups if g.atom in masks}
    sizes = {atom: int(mask.sum()) for atom, mask in masks.items()}
    return Plan(kept, _tensors(groups, masks), _attributes(groups, sizes))


def _tensors(
    groups: Groups, masks: Mapping[Atom, Bool[Tensor, " units"]]
) -> dict[str, dict[int, Indices]]:
    places = (place for g in groups if g.atom in masks for place in g.axes)
    planned: dict[str, dict[int, Indices]] = {}
    for place in dict.fromkeys(places):
        kept = _numbers(axis_mask(place.axis, masks))
        planned.setdefault(place.tensor, {})[place.dim] = kept
    return planned


def _attributes(groups: Groups, sizes: Mapping[Atom, int]) -> dict[str, int]:
    resolve = groups.solution.algebra.resolve
    changed: dict[str, int] = {}
    for attribute, axis in groups.attributes.items():
        value = int(count(resolve(axis), sizes))
        if value != attribute.value:
            changed[str(attribute)] = value
    return changed


def _numbers(kept: Bool[Tensor, " n"]) -> Indices:
    return tuple(kept.nonzero().flatten().tolist())


def _compose(
    where: str, first: Mapping[KeyT, Indices], second: Mapping[KeyT, Indices]
) -> dict[KeyT, Indices]:
    """Kept indices, in the numbers of the original, after two cuts in a row."""
    composed = dict(first)
    for key, chosen in second.items():
        kept = first.get(key)
        if kept is not None and max(chosen, default=0) >= len(kept):
            raise ArgumentError(
                f"the later plan keeps index {max(chosen)} of {key!r} of {where}, "
                f"where this one leaves {len(kept)}. Plan it on the smaller model."
            )
        composed[key] = chosen if kept is None else tuple(kept[i] for i in chosen)
    return composed


def _outside(paths: Iterable[str], named: Mapping[str, ItemT]) -> dict[str, ItemT]:
    """Items whose name does not begin with one of these paths."""
    inside = tuple(f"{path}." for path in paths)
    return {name: item for name, item in named.items() if not name.startswith(inside)}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _check_digest(data: dict[str, Any]) -> None:
    """Refuse a plan that is not as it was written; one written by hand has no digest.

    Raises:
        ValueError: If it was damaged.
    """
    expected = data.pop(_DIGEST, None)
    if expected is not None and expected != _digest(json.dumps(data)):
        raise ValueError("it is damaged: its digest is that of another plan")


def _read(data: dict[str, Any]) -> Plan:
    certificate = data["certificate"]
    return Plan(
        {name: _indices(kept, least=0) for name, kept in data["kept"].items()},
        {
            name: {_natural(int(dim)): _indices(kept) for dim, kept in dims.items()}
            for name, dims in data["tensors"].items()
        },
        {name: _natural(value) for name, value in data["attributes"].items()},
        {name: _stub(**fields) for name, fields in data.get("stubs", {}).items()},
        None if certificate is None else _certificate(**certificate),
    )


def _indices(numbers: object, least: int = 1) -> Indices:
    if not isinstance(numbers, list) or len(numbers) < least:
        raise TypeError(f"expected a list of kept indices, got {numbers!r}")
    found = tuple(map(_natural, numbers))
    if any(a >= b for a, b in pairwise(found)):
        raise ValueError(f"kept indices must be distinct and rising, got {numbers!r}")
    return found


def _natural(number: object) -> int:
    if type(number) is not int or number < 0:
        raise TypeError(f"expected an integer that is not negative, got {number!r}")
    return number


def _stub(strides: list[object], wider: object) -> Stub:
    if len(strides) > 3 or 0 in strides or type(wider) is not int:
        raise TypeError(f"expected strides and an integer, got {strides!r}, {wider!r}")
    return Stub(tuple(map(_natural, strides)), wider)


def _certificate(
    max_absolute: float,
    max_relative: float,
    dtype: str,
    compared: list[str] | tuple[str, ...] = (),
    doubts: list[str] | tuple[str, ...] = (),
) -> Certificate:
    return Certificate(
        float(max_absolute),
        float(max_relative),
        str(dtype),
        tuple(map(str, compared)),
        tuple(map(str, doubts)),
    )

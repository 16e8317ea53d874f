"""Axis algebra: what a tensor dimension is made of.

Every dimension is an *axis*: a row-major product of factors, in the spirit of einops.
A factor is an *atom* (units that can be kept or removed one by one) or a concatenation
of axes. `(c h w)` is what `flatten` makes of a feature map, `[q | k | v]` what a fused
projection holds; `()` has one element. Ops equate axes; equating is unification: an
atom may turn out to be a product or a concatenation of finer atoms, never the reverse.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Generic, TypeAlias, TypeVar

import torch
from torch import Tensor

from diffprune._core.types import Bool, Int

ReasonT = TypeVar("ReasonT")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Atom:
    """Units of one axis that nothing has divided further. Compared by identity."""

    size: int

    def __repr__(self) -> str:
        return f"<{self.size}>"

    def __deepcopy__(self, memo: object) -> "Atom":
        return self


@dataclass(frozen=True)
class Cat:
    """Axes laid end to end in one dimension."""

    parts: tuple["Axis", ...]

    @property
    def size(self) -> int:
        """Number of elements of all parts together."""
        return sum(map(size, self.parts))


Axis: TypeAlias = tuple[Atom | Cat, ...]


class MisalignedError(Exception):
    """Two ways of dividing one axis that have no common refinement."""


def size(axis: Axis) -> int:
    """Number of elements along the axis."""
    return math.prod(factor.size for factor in axis)


def atoms(axis: Axis) -> Iterator[Atom]:
    """Every atom in the axis, in order, repetitions included."""
    for factor in axis:
        if isinstance(factor, Atom):
            yield factor
        else:
            for part in factor.parts:
                yield from atoms(part)


def atoms_of(axes: Iterable[Axis]) -> set[Atom]:
    """The atoms of several axes, without repetitions."""
    return {atom for axis in axes for atom in atoms(axis)}


def mask(axis: Axis, keep: Mapping[Atom, Bool[Tensor, " units"]]) -> Bool[Tensor, " n"]:
    """Which elements of the axis survive when each atom keeps only some units."""
    kept = torch.ones(1, dtype=torch.bool)
    for factor in axis:
        if isinstance(factor, Cat):
            inner = torch.cat([mask(part, keep) for part in factor.parts])
        elif factor in keep:
            inner = keep[factor]
        else:
            inner = torch.ones(factor.size, dtype=torch.bool)
        kept = (kept[:, None] & inner).flatten()
    return kept


def rearranged(
    axis: Axis, orders: Mapping[Atom, Int[Tensor, " units"]]
) -> Int[Tensor, " n"]:
    """Where every element of the axis comes from when units of atoms change places.

    Examples:
        >>> pair = Atom(2)
        >>> rearranged((pair, Atom(3)), {pair: torch.tensor([1, 0])})
        tensor([3, 4, 5, 0, 1, 2])
    """
    index = torch.zeros(1, dtype=torch.long)
    for factor in axis:
        if isinstance(factor, Cat):
            parts: list[Tensor] = []
            for part in factor.parts:
                parts.append(sum(map(len, parts)) + rearranged(part, orders))
            inner = torch.cat(parts)
        else:
            inner = orders.get(factor, torch.arange(factor.size))
        index = (index[:, None] * len(inner) + inner).flatten()
    return index


NumberT = TypeVar("NumberT", int, float, Tensor)


def count(axis: Axis, sizes: Mapping[Atom, NumberT]) -> NumberT | int:
    """Number of elements when atoms have other sizes; differentiable if they are."""
    total: NumberT | int = 1
    for factor in axis:
        if isinstance(factor, Cat):
            total = total * sum(count(part, sizes) for part in factor.parts)
        else:
            total = total * sizes.get(factor, factor.size)
    return total


def volume(axes: Sequence[Axis], sizes: Mapping[Atom, int]) -> int:
    """Number of elements of a tensor with these axes when atoms have other sizes."""
    return math.prod(count(axis, sizes) for axis in axes)


class Algebra(Generic[ReasonT]):
    """What is known so far: what atoms turned out to be, and which may not be cut."""

    def __init__(self) -> None:
        self._bound: dict[Atom, Axis] = {}
        self._frozen: dict[Atom, ReasonT] = {}
        self._merged: dict[Atom, int] = {}

    def fresh(self, length: int) -> Axis:
        """Create an axis about which nothing is known but its length."""
        return () if length == 1 else (Atom(length),)

    def freeze(self, axis: Axis, reason: ReasonT) -> None:
        """Forbid cutting any unit of the axis. The first reason given is kept."""
        for atom in atoms(self.resolve(axis)):
            self._frozen.setdefault(atom, reason)

    def reason(self, atom: Atom) -> ReasonT | None:
        """Why the atom is frozen, or None when it is free."""
        return self._frozen.get(atom)

    def resolve(self, axis: Axis) -> Axis:
        """Write the axis in terms of atoms that are still whole."""
        factors: list[Atom | Cat] = []
        for factor in axis:
            if isinstance(factor, Cat):
                factors.extend(_cat([self.resolve(part) for part in factor.parts]))
            elif factor in self._bound:
                resolved = self.resolve(self._bound[factor])
                self._bound[factor] = resolved
                factors.extend(resolved)
            else:
                factors.append(factor)
        return tuple(factors)

    def narrowed(self, sizes: Mapping[Atom, int]) -> "Algebra[ReasonT]":
        """The algebra of a smaller model; this one stays as it is.

        Args:
            sizes: New numbers of units. Each of these atoms resolves to a new, smaller
                one.
        """
        smaller = Algebra[ReasonT]()
        shrunk = {atom: (Atom(length),) for atom, length in sizes.items()}
        smaller._bound = {**self._bound, **shrunk}
        smaller._frozen, smaller._merged = dict(self._frozen), dict(self._merged)
        return smaller

    def unify(self, left: Axis, right: Axis) -> None:
        """Make two axes the same: a unit kept on one side is kept on the other.

        Raises:
            MisalignedError: If their divisions have no common refinement.
        """
        left, right = self.resolve(left), self.resolve(right)
        if size(left) != size(right):
            raise MisalignedError
        while left != right and size(left):
            lead = min(left[0].size, right[0].size)
            (first, left), (second, right) = (
                self._lead(left, lead),
                self._lead(right, lead),
            )
            self._unify_factors(first, second)
            left, right = self.resolve(left), self.resolve(right)

    def split(self, axis: Axis, lengths: Sequence[int]) -> tuple[Axis, ...]:
        """Divide an axis into factors of the given lengths, as `unflatten` does."""
        rest, found = self.resolve(axis), list[Axis]()
        for length in lengths:
            factor, rest = self._lead(rest, length)
            found.append(factor)
            rest = self.resolve(rest)
        return tuple(map(self.resolve, found))

    def align(
        self, axis: Axis, lengths: Sequence[int]
    ) -> Iterator[tuple[Axis, Sequence[int]]]:
        """Divide an axis into as many factors as there are, each of one length or more.

        Several lengths share a factor where they do not divide it as it is divided.
        """
        rest, start = self.resolve(axis), 0
        for end in range(1, len(lengths)) if size(rest) else ():
            try:
                factor, rest = self._lead(rest, math.prod(lengths[start:end]))
            except MisalignedError:
                rest = self.resolve(rest)
                continue
            yield factor, lengths[start:end]
            rest, start = self.resolve(rest), end
        yield rest, lengths[start:]

    def cut(self, axis: Axis, lengths: Sequence[int]) -> tuple[Axis, ...]:
        """Divide an axis into consecutive segments, as `torch.split` does."""
        axis = self.resolve(axis)
        if len(lengths) == 1:
            return (axis,)
        head, rest = axis[0], axis[1:]
        stride = size(rest)
        if any(length % stride or not length for length in lengths):
            raise MisalignedError
        segments = self._cut_factor(head, [length // stride for length in lengths])
        return tuple(self.resolve((*segment, *rest)) for segment in segments)

    def _bind(self, atom: Atom, axis: Axis) -> None:
        self._bound[atom] = axis
        if atom in self._frozen:
            self.freeze(axis, self._frozen.pop(atom))

    def _unify_factors(self, left: Axis, right: Axis) -> None:
        """Unify two axes of equal size, of which at least one is a single factor."""
        left, right = self.resolve(left), self.resolve(right)
        match left, right:
            case _ if left == right:
                pass
            case (Atom() as one,), (Atom() as other,):
                self._merge(one, other)
            case (Atom() as atom,), _:
                self._bind(atom, right)
            case _, (Atom() as atom,):
                self._bind(atom, left)
            case (Cat() as one,), (Cat() as other,):
                self._unify_cats(one, other)
            case _:
                self.unify(left, right)

    def _merge(self, one: Atom, other: Atom) -> None:
        """Keep the atom that more have been merged into: chains stay short."""
        counts = [self._merged.get(atom, 1) for atom in (one, other)]
        light, heavy = (one, other) if counts[0] <= counts[1] else (other, one)
        self._merged[heavy] = sum(counts)
        self._bind(light, (heavy,))

    def _unify_cats(self, left: Cat, right: Cat) -> None:
        ends = sorted({0, *_ends(left), *_ends(right)})
        lengths = [end - start for start, end in pairwise(ends)]
        pairs = zip(
            self.cut((left,), lengths), self.cut((right,), lengths), strict=True
        )
        for one, other in pairs:
            self.unify(one, other)

    def _lead(self, axis: Axis, length: int) -> tuple[Axis, Axis]:
        """Divide a resolved axis into a leading factor of this length and the rest."""
        lead: Axis = ()
        while (need := length // size(lead)) > 1:
            if not axis or not axis[0].size:
                raise MisalignedError
            factor, axis = axis[0], axis[1:]
            if need % factor.size == 0:
                lead = (*lead, factor)
            elif factor.size % need == 0:
                first, second = self._divide(factor, need)
                return (*lead, *first), (*second, *axis)
            else:
                raise MisalignedError
        return lead, axis

    def _divide(self, factor: Atom | Cat, lead: int) -> tuple[Axis, Axis]:
        trail = factor.size // lead
        if isinstance(factor, Atom):
            first, second = self.fresh(lead), self.fresh(trail)
            self._bind(factor, (*first, *second))
            return first, second
        leads, shared = list[Axis](), self.fresh(trail)
        for part in factor.parts:
            if size(part) % trail:
                raise MisalignedError
            first, second = self.split(part, [size(part) // trail, trail])
            self.unify(second, shared)
            leads.append(first)
        return (Cat(tuple(leads)),), shared

    def _cut_factor(self, factor: Atom | Cat, lengths: Sequence[int]) -> list[Axis]:
        if isinstance(factor, Atom):
            segments = [self.fresh(length) for length in lengths]
            self._bind(factor, (Cat(tuple(segments)),))
            return segments
        segments, coming = list[Axis](), list(reversed(factor.parts))
        for length in lengths:
            taken, missing = list[Axis](), length
            while missing:
                part = coming.pop()
                if size(part) > missing:
                    part, left_over = self.cut(part, [missing, size(part) - missing])
                    coming.append(left_over)
                taken.append(part)
                missing -= size(part)
            segments.append(_cat(taken))
        return segments


def _cat(parts: Sequence[Axis]) -> Axis:
    """Concatenate, flattening concatenations of concatenations."""
    flat = list[Axis]()
    for part in parts:
        if len(part) == 1 and isinstance(part[0], Cat):
            flat.extend(part[0].parts)
        else:
            flat.append(part)
    return flat[0] if len(flat) == 1 else (Cat(tuple(flat)),)


def _ends(cat: Cat) -> Iterator[int]:
    """Where the parts of a concatenation end."""
    return accumulate(map(size, cat.parts))

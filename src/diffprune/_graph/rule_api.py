"""One op of a trace, as its rule sees it. Knows the algebra, not how ops behave.

A rule receives a `Call` and the op's arguments, tensors replaced by `Value`s, and
returns the axes of the output. What it learns on the way it says through the methods
of the call: these two axes are one, this one is summed over, that one may not be cut.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from diffprune._graph.axes import Algebra, Axis, MisalignedError, size
from diffprune._graph.tracked_int import Source

Axes: TypeAlias = tuple[Axis, ...]

SPATIAL: Final = "a position in space or time, not a channel"


@dataclass(frozen=True)
class Where:
    """Where in the user's code an op was called."""

    op: str
    module: str
    line: str

    def __str__(self) -> str:
        inside = f"in `{self.module}`" if self.module else "in the model's own forward"
        return f"`{self.op}` {inside}" + (f" ({self.line})" if self.line else "")


@dataclass(frozen=True)
class Frozen:
    """Why an axis may not be cut, and what would free it."""

    why: str
    where: Where | None = None
    fix: str = ""

    def __str__(self) -> str:
        text = f"{self.why}: {self.where}" if self.where else self.why
        return f"{text}. {self.fix}" if self.fix else text


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor in a trace: one axis per dimension.

    Attributes:
        axes: What each dimension is made of.
        name: Its name in the model, for parameters and buffers only.
    """

    axes: Axes
    name: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each dimension."""
        return tuple(map(size, self.axes))


@dataclass(frozen=True, eq=False)
class Contraction:
    """An axis that is summed over: of one value, or of the product of two."""

    axis: Axis
    operands: tuple[tuple[Value, int], ...]
    where: Where


@dataclass(frozen=True)
class SizeUse:
    """An integer argument that must equal the length of an axis, and its origin."""

    source: Source | None
    axis: Axis
    where: Where


@dataclass
class Facts:
    """What the rules of a whole trace said, besides equations between axes."""

    contractions: list[Contraction] = field(default_factory=list[Contraction])
    size_uses: list[SizeUse] = field(default_factory=list[SizeUse])
    products: list[Axes] = field(default_factory=list[Axes])
    heads: list[Axis] = field(default_factory=list[Axis])
    inside_heads: list[Axis] = field(default_factory=list[Axis])
    numbers: list[tuple[Source, Where]] = field(
        default_factory=list[tuple[Source, Where]]
    )
    directions: list[tuple[Value, int]] = field(default_factory=list[tuple[Value, int]])


@dataclass
class Call:
    """An op with its place in the user's code; the vocabulary of the rules."""

    where: Where
    shapes: tuple[tuple[int, ...], ...]
    algebra: Algebra[Frozen]
    facts: Facts
    integers: list[tuple[int, Source | None]]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the (first) output."""
        return self.shapes[0]

    def fresh(self, *lengths: int) -> Axes:
        """Make axes about which nothing is known yet."""
        return tuple(self.algebra.fresh(length) for length in lengths)

    def frozen(self, why: str, *lengths: int) -> Axes:
        """Make axes that may not be cut."""
        axes = self.fresh(*lengths)
        for axis in axes:
            self.freeze(axis, why)
        return axes

    def unify(self, left: Axis, right: Axis) -> None:
        """Say that two axes are one. Freezes both if they cannot be."""
        try:
            self.algebra.unify(left, right)
        except MisalignedError:
            self.freeze(left, "two divisions of this axis do not line up")
            self.freeze(right, "two divisions of this axis do not line up")

    def match(self, axis: Axis, *vectors: Value | None) -> None:
        """Say that vectors (a bias, a scale) run along the axis."""
        for vector in vectors:
            if vector is not None:
                self.unify(axis, vector.axes[0])

    def split(self, axis: Axis, lengths: Sequence[int]) -> Axes:
        """Divide into factors, as `unflatten`; frozen where that is impossible."""
        try:
            return self.algebra.split(axis, lengths)
        except MisalignedError:
            return self._instead(axis, lengths, "reshaped across its units")

    def cut(self, axis: Axis, lengths: Sequence[int]) -> Axes:
        """Divide into segments, as `torch.split`; frozen where that is impossible."""
        try:
            return self.algebra.cut(axis, lengths)
        except MisalignedError:
            return self._instead(axis, lengths, "cut in the middle of a unit")

    def contract(
        self, x: Value, dim: int, y: Value, other: int, part: Axis | None = None
    ) -> None:
        """Say that the product of two values is summed over a shared axis.

        `part` is the factor of the axis of `x` that is summed over, if not all of it.
        """
        axis = x.axes[dim] if part is None else part
        self.unify(axis, y.axes[other])
        operands = ((x, dim % len(x.axes)), (y, other % len(y.axes)))
        self.facts.contractions.append(Contraction(axis, operands, self.where))

    def reduce(self, x: Value, dim: int) -> None:
        """Say that a value is summed over one of its axes."""
        contraction = Contraction(x.axes[dim], ((x, dim % len(x.axes)),), self.where)
        self.facts.contractions.append(contraction)

    def freeze(self, axis: Axis, why: str, fix: str = "") -> None:
        """Say that no unit of the axis may be cut."""
        self.algebra.freeze(axis, Frozen(why, self.where, fix))

    def require(self, length: int, axis: Axis, *, last: bool = False) -> None:
        """Say that an integer argument must equal the length of the axis.

        Arguments are told apart by their value, in the order they were passed; `last`
        looks from the end, past strides and paddings.
        """
        places = [i for i, (n, _) in enumerate(self.integers) if n == length]
        place = places[-1 if last else 0] if places else None
        source = None if place is None else self.integers.pop(place)[1]
        self.facts.size_uses.append(SizeUse(source, axis, self.where))

    def rest_are_numbers(self) -> None:
        """Say that integers no axis was required to follow enter the arithmetic."""
        for _, source in self.integers:
            if source is not None:
                self.facts.numbers.append((source, self.where))

    def multiply_adds(self, *axes: Axis) -> None:
        """Say that the op costs one multiply-add per element of this product."""
        self.facts.products.append(axes)

    def broadcast(self, values: Iterable[Value]) -> Axes:
        """Axes of an element-wise op: operands of equal length are tied together."""
        out = list(self.fresh(*self.shape))
        for value in values:
            for dim in range(-len(value.axes), 0):
                axis = value.axes[dim]
                if axis and size(axis) == self.shape[dim]:
                    self.unify(out[dim], axis)
        return tuple(out)

    def _instead(self, axis: Axis, lengths: Sequence[int], why: str) -> Axes:
        self.freeze(axis, why)
        return self.frozen(why, *lengths)

"""What an op means: `OpRule`, and the `Call` through which its axes are stated.

`OpRule.axes` receives a `Call` and the op's own arguments, tensors replaced by
`Value`s, and returns the axes of the output. What else it learns it says through the
methods of the call: these two axes are one, this one is summed over, that one may not
be cut. The other fields of an `OpRule` say what becomes of zeros and scales.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from torch import Tensor, fx
from torch._ops import OpOverload, OpOverloadPacket

from diffprune._core.door import check_fields
from diffprune._core.leaves import leaves_of
from diffprune._graph.axes import Algebra, Atom, Axis, MisalignedError, size
from diffprune._graph.int_sources import Source

Axes: TypeAlias = tuple[Axis, ...]
Op: TypeAlias = OpOverloadPacket | OpOverload
Anything: TypeAlias = Any
MaskT = TypeVar("MaskT", bool, Tensor)
MaskT_co = TypeVar("MaskT_co", bool, Tensor, covariant=True)

SPATIAL: Final = "a position in space or time, not a channel"
AS_POSITIONS: Final = "its units are used as positions in space or time"
"""Of an axis made by something else, as channels that a convolution runs along."""


class Unsupported(Exception):  # noqa: N818 - not an error: an answer
    """Raised by a rule that does not know this form of its op.

    The axes that reach the op are then frozen, and the reason says so. Anything else
    that a rule raises is taken for a mistake in the rule, and ends the search.
    """


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
        is_mask: Whether it holds truth values, so that as an index it picks those
            elements at which it is true.
    """

    axes: Axes
    name: str | None = None
    is_mask: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each dimension."""
        return tuple(map(size, self.axes))


class Product(NamedTuple):
    """Factors whose product is the multiply-adds of one op, and the module it is in."""

    axes: Axes
    module: str


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


@dataclass(frozen=True, eq=False)
class LayerWidth:
    """A width that a layer reports about itself, such as `out_features`.

    Attributes:
        weight: The parameter that the layer owns, if it was read directly.
        module: The module that called the op.
        attribute: Name of the attribute.
        axis: What the attribute counts.
    """

    weight: Value | None
    module: str
    attribute: str
    axis: Axis


@dataclass
class Facts:
    """What the rules of a whole trace said, besides equations between axes."""

    contractions: list[Contraction] = field(default_factory=list[Contraction])
    size_uses: list[SizeUse] = field(default_factory=list[SizeUse])
    products: list[Product] = field(default_factory=list[Product])
    heads: list[Axis] = field(default_factory=list[Axis])
    inside_heads: list[Axis] = field(default_factory=list[Axis])
    inside_values: list[Axis] = field(default_factory=list[Axis])
    numbers: list[tuple[Source, Where]] = field(
        default_factory=list[tuple[Source, Where]]
    )
    directions: list[tuple[Value, int]] = field(default_factory=list[tuple[Value, int]])
    layer_widths: list[LayerWidth] = field(default_factory=list[LayerWidth])
    coupled: list[tuple[Axis, Frozen]] = field(
        default_factory=list[tuple[Axis, Frozen]]
    )


@dataclass
class Call:
    """An op with its place in the user's code; the vocabulary of the rules.

    Attributes:
        where: Its place.
        shapes: Shapes of its outputs.
        algebra: What is known of axes so far.
        facts: What the rules have said so far.
        integers: The integers it was passed, and where they come from.
        is_used: Whether anything the model returns depends on its values.
    """

    where: Where
    shapes: tuple[tuple[int, ...], ...]
    algebra: Algebra[Frozen]
    facts: Facts
    integers: list[tuple[int, Source | None]]
    is_used: bool = True

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
        out = list[Axis]()
        for factor, shared in self.algebra.align(axis, lengths):
            one = len(shared) == 1
            why = "reshaped across its units"
            out += [factor] if one else self._instead(factor, shared, why)
        return tuple(map(self.algebra.resolve, out))

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

    def couple(self, axis: Axis, why: str) -> None:
        """Say that statistics of its units scale all of them, as those of a norm do.

        They are frozen, unless `find_groups` is asked to narrow norms.
        """
        fix = (
            'No removal is exact here; only `norms="narrow"`, as in `shrink`, cuts it.'
        )
        self.facts.coupled.append((axis, Frozen(why, self.where, fix)))

    def require(self, length: int, axis: Axis, *, last: bool = False) -> None:
        """Say that an integer argument must equal the length of the axis.

        Arguments are told apart by their value, in the order they were passed; `last`
        looks from the end, past strides and paddings.
        """
        places = [i for i, (n, _) in enumerate(self.integers) if n == length]
        place = places[-1 if last else 0] if places else None
        source = None if place is None else self.integers.pop(place)[1]
        self.facts.size_uses.append(SizeUse(source, axis, self.where))

    def require_if_computed(self, length: int | None, axis: Axis) -> None:
        """Like `require`, unless the integer is written as a number, or left out.

        For one that may be larger than the axis, as the end of a slice may be.
        """
        computed = [n for n, source in self.integers if source is not None]
        if length is not None and length in computed:
            self.require(length, axis)

    def rest_are_numbers(self) -> None:
        """Say that integers no axis was required to follow enter the arithmetic."""
        for _, source in self.integers:
            if source is not None:
                self.facts.numbers.append((source, self.where))

    def layer_widths(self, weight: Value | None, **axes: Axis) -> None:
        """Say which attributes of a layer count the elements of an axis.

        The layer is the one that owns the weight; without a weight, or with one that is
        computed, it is the one that calls the op. Attributes it lacks do not matter.
        """
        named = weight if weight is not None and weight.name is not None else None
        self.facts.layer_widths.extend(
            LayerWidth(named, self.where.module, attribute, axis)
            for attribute, axis in axes.items()
        )

    def multiply_adds(self, *axes: Axis) -> None:
        """Say that the op costs one multiply-add per element of this product."""
        self.facts.products.append(Product(axes, self.where.module))

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


class Zeros(Protocol[MaskT_co]):
    """What is known to be zero so far, as `OpRule.zeros` is told.

    A *mask* says which units of an atom are zero: a boolean tensor, or one boolean for
    all units. Atoms that are missing are not known to be zero.
    """

    def of(self, value: Value) -> Mapping[Atom, MaskT_co]:
        """Units of all atoms of a value whose slices are zero."""
        ...

    def along(self, value: Value, dim: int) -> Mapping[Atom, MaskT_co]:
        """Units of the atoms of one dimension whose slices are zero."""
        ...

    def atoms(self, value: Value) -> frozenset[Atom]:
        """All atoms of a value."""
        ...

    def full(self, atom: Atom) -> MaskT_co:
        """The mask that says that all units are zero."""
        ...


AxesRule: TypeAlias = Callable[..., Axes | list[Axes]]
ZeroRule: TypeAlias = Callable[[Zeros[Any], "Step"], Mapping[Atom, Any]]


def never_zero(zeros: Zeros[MaskT], step: "Step") -> Mapping[Atom, MaskT]:
    """Nothing of the output is known to be zero."""
    del zeros, step
    return {}


@dataclass(frozen=True, eq=False)
class OpRule:
    """What an op means: everything that the library knows about it.

    Attributes:
        axes: `(call, *arguments of the op) -> axes of the output`; a list if there are
            several outputs with axes of their own.
        zeros: `(zeros, step) -> masks`: which units of the output are zero. Nothing is
            by default; `diffprune.rules` has the usual answers.
        rows: Parameters with one row per unit of the output, as `(argument,
            dimension)`, the weight first: scaling the rows scales the unit.
        bias: The argument that is added, and the dimension of the output it runs along.
        linear: Whether the op is linear in its first argument, apart from the bias.
        passes_scale: Whether a positive factor of a unit of the first argument comes
            out as the same factor.
        may_return_input: Whether the output can be the first argument itself, which the
            schema of the op does not say.
        at_widths: Adapts the arguments of the op when its tensors have other widths.
    """

    axes: AxesRule
    zeros: ZeroRule = never_zero
    rows: tuple[tuple[int, int], ...] = ()
    bias: tuple[int, int] | None = None
    linear: bool = False
    passes_scale: bool = False
    may_return_input: bool = False
    at_widths: Callable[[tuple[Any, ...]], tuple[Any, ...]] = tuple

    def __post_init__(self) -> None:
        check_fields(self)


Rule: TypeAlias = OpRule | AxesRule


def as_rule(rule: Rule) -> OpRule:
    """A bare function states the axes, and nothing else."""
    return rule if isinstance(rule, OpRule) else OpRule(rule)


@dataclass(frozen=True, eq=False)
class Step:
    """An op of a trace with the values it read and made.

    Attributes:
        op: What was called.
        packet: All overloads of that op; None if it is none of torch's.
        rule: What is known about the op.
        call: Where it was called, and what rules may say.
        args: Its positional arguments, with a `Value` for each tensor.
        kwargs: Its keyword arguments.
        outputs: The tensors it made.
        node: The op in the graph of `torch.fx`.
    """

    op: OpOverload
    packet: OpOverloadPacket | None
    rule: OpRule
    call: Call
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[Value, ...]
    node: fx.Node

    @cached_property
    def inputs(self) -> tuple[Value, ...]:
        """Tensors among the arguments, lists flattened."""
        return tuple(leaves_of(Value, (self.args, tuple(self.kwargs.values()))))

    def argument(self, place: int) -> Any:  # noqa: ANN401 - whatever the op takes
        """A positional argument; None if it was left out."""
        return self.args[place] if place < len(self.args) else None

    def rows(self) -> list[tuple[Value, int]]:
        """Parameters with a row per unit, the weight first; none without a weight."""
        found = [(self.argument(place), dim) for place, dim in self.rule.rows]
        given = [(value, dim) for value, dim in found if isinstance(value, Value)]
        return given if given[:1] == found[:1] else []

"""Integers that remember where they were read. Knows no axes, ops or models.

A traced graph shows `reshape(x, [2, 5, 3, 7])` and hides that the 3 was read from
`self.num_heads` and the 7 computed as `x.shape[2] // self.num_heads`. After a cut those
integers must change, and only their origin says whether and how. A `TrackedInt` is an
ordinary integer that remembers its origin through arithmetic.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self, TypeAlias, cast


@dataclass(frozen=True)
class Attribute:
    """An integer attribute of a module."""

    module: str
    name: str
    value: int

    def __str__(self) -> str:
        return f"{self.module}.{self.name}" if self.module else self.name


@dataclass(frozen=True)
class Dimension:
    """One entry of the shape of an intermediate tensor, named by a token."""

    token: str
    dim: int
    value: int

    def __str__(self) -> str:
        return f"shape[{self.dim}]"


@dataclass(frozen=True)
class Formula:
    """Arithmetic on other sources."""

    symbol: str
    left: "Source | int"
    right: "Source | int"

    def __str__(self) -> str:
        return f"({self.left} {self.symbol} {self.right})"


Source: TypeAlias = Attribute | Dimension | Formula

_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


def evaluate(
    source: Source | int, values: Callable[[Attribute | Dimension], int]
) -> int:
    """Value of a source when its attributes and dimensions have other values.

    Examples:
        >>> width = Attribute("", "width", 6)
        >>> evaluate(Formula("//", width, 2), lambda _: 10)
        5
    """
    if isinstance(source, Formula):
        left, right = evaluate(source.left, values), evaluate(source.right, values)
        return _ARITHMETIC[source.symbol](left, right)
    return source if isinstance(source, int) else values(source)


def leaves(source: Source | int) -> Iterator[Attribute | Dimension]:
    """The attributes and dimensions a source is computed from."""
    if isinstance(source, Formula):
        yield from leaves(source.left)
        yield from leaves(source.right)
    elif not isinstance(source, int):
        yield source


@dataclass
class SizeLog:
    """What was done with tracked integers, other than passing them to an op.

    Attributes:
        fixed: Integers that may not change, and why.
        equal: Pairs that were found equal.
    """

    fixed: dict[Source, str] = field(default_factory=dict[Source, str])
    equal: list[tuple[Source, Source]] = field(
        default_factory=list[tuple[Source, Source]]
    )


def _arithmetic(
    symbol: str, *, reverse: bool = False
) -> Callable[["TrackedInt", Any], Any]:
    function = _ARITHMETIC[symbol]

    def method(self: "TrackedInt", other: Any) -> Any:  # noqa: ANN401 - as int's own
        if isinstance(other, bool) or not isinstance(other, int | float):
            return NotImplemented
        mine, theirs = self.plain(), plain(other)
        value = function(theirs, mine) if reverse else function(mine, theirs)
        if isinstance(other, float):
            return self.used_as_number(value)
        sources = (self.source, source_of(other) or plain(other))
        return TrackedInt(
            value, Formula(symbol, *sources[:: -1 if reverse else 1]), self.log
        )

    return method


class TrackedInt(int):
    """An integer that knows where it was read.

    Its one blind spot is a float on the left, as in `1.0 / n`: Python then asks the
    float alone. What that could break is caught when a removal verifies itself, and
    the error names the number.

    Args:
        value: Its value.
        source: Where it was read, or how it was computed.
        log: Told about every use that fixes the value.
    """

    source: Source
    log: SizeLog

    def __new__(cls, value: int, source: Source, log: SizeLog) -> Self:
        """Make an integer; its origin is set beside its value."""
        self = super().__new__(cls, value)
        self.source, self.log = source, log
        return self

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """Copies and pickles are ordinary integers."""
        return int, (self.plain(),)

    def plain(self) -> int:
        """Return the value alone."""
        return int.__int__(self)

    __hash__ = int.__hash__
    __add__, __radd__ = _arithmetic("+"), _arithmetic("+", reverse=True)
    __sub__, __rsub__ = _arithmetic("-"), _arithmetic("-", reverse=True)
    __mul__, __rmul__ = _arithmetic("*"), _arithmetic("*", reverse=True)
    __mod__, __rmod__ = _arithmetic("%"), _arithmetic("%", reverse=True)
    __floordiv__ = _arithmetic("//")
    __rfloordiv__ = _arithmetic("//", reverse=True)

    def __neg__(self) -> Any:  # noqa: ANN401 - tracked, like any difference
        return 0 - self

    def __eq__(self, other: object) -> bool:
        equal = int.__eq__(self, cast("int", other))
        if equal is True and isinstance(other, TrackedInt):
            self.log.equal.append((self.source, other.source))
        return equal

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __int__(self) -> int:
        return self.used_as_number(self.plain())

    def __float__(self) -> float:
        return self.used_as_number(int.__float__(self))

    def __truediv__(self, other: float) -> float:
        return self.used_as_number(int.__truediv__(self, cast("int", other)))

    def __rtruediv__(self, other: float) -> float:
        return self.used_as_number(int.__rtruediv__(self, cast("int", other)))

    def __pow__(self, other: Any, modulo: Any = None) -> Any:  # noqa: ANN401 - as int's
        return self.used_as_number(int.__pow__(self, other, modulo))

    def used_as_number(self, result: Any) -> Any:  # noqa: ANN401 - passed through
        """Note that the size itself, not just a shape, enters the computation."""
        self.log.fixed[self.source] = f"its length is used as a number: {self.source}"
        return result


def plain(number: Any) -> Any:  # noqa: ANN401 - an int or a float, as it came
    """Return the value of a number alone."""
    return number.plain() if isinstance(number, TrackedInt) else number


def source_of(number: object) -> Source | None:
    """Where a number was read, if it knows."""
    return number.source if isinstance(number, TrackedInt) else None

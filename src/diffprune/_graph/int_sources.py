"""Where an integer was read, and how it was computed from others: what remains of one.

A *source* can be evaluated again, when attributes and shapes have other values.
"""

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias


@dataclass(frozen=True)
class Attribute:
    """An integer that a module holds; `normalized_shape[0]` is an entry of several."""

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

ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}
COMPARISONS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
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
        return ARITHMETIC[source.symbol](left, right)
    return source if isinstance(source, int) else values(source)


def leaves(source: Source | int) -> Iterator[Attribute | Dimension]:
    """The attributes and dimensions a source is computed from."""
    if isinstance(source, Formula):
        yield from leaves(source.left)
        yield from leaves(source.right)
    elif not isinstance(source, int):
        yield source


@dataclass(frozen=True)
class Question:
    """A comparison that the code made, and what came out.

    Attributes:
        symbol: Which comparison.
        left: What stood on its left.
        right: What stood on its right.
        where: The line of code.
    """

    symbol: str
    left: "Source | int"
    right: "Source | int"
    where: str

    def answer(self, values: Callable[[Attribute | Dimension], int]) -> bool:
        """What comes out when attributes and dimensions have these values."""
        left, right = evaluate(self.left, values), evaluate(self.right, values)
        return COMPARISONS[self.symbol](left, right)

    def __str__(self) -> str:
        return f"{self.left} {self.symbol} {self.right} ({self.where})"


@dataclass
class SizeLog:
    """What was done with tracked integers, other than passing them to an op.

    Attributes:
        fixed: Integers that may not change, and why.
        equal: Pairs that were found equal.
        asked: All other comparisons.
    """

    fixed: dict[Source, str] = field(default_factory=dict[Source, str])
    equal: list[tuple[Source, Source]] = field(
        default_factory=list[tuple[Source, Source]]
    )
    asked: set[Question] = field(default_factory=set[Question])

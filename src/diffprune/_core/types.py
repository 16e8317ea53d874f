"""Annotations that say more than a type: shapes of tensors, and ranges of numbers.

`Float[Tensor, " units"]` reads as it does in jaxtyping; to a type checker and to a
running program it is the plain `Tensor` with a note attached. `Count` is an `int` of at
least one; `door` reads the note.
"""

import math
from dataclasses import dataclass
from typing import (
    Annotated,
    Annotated as Bool,
    Annotated as Float,
    Annotated as Int,
    TypeAlias,
)

__all__ = [
    "Amount", "Bool", "Count", "Extended", "Float", "Int", "Natural", "Part", "Seed",
    "Within",
]  # fmt: skip


@dataclass(frozen=True)
class Within:
    """The range of a number, its ends included.

    Attributes:
        least: The smallest number.
        most: The largest number.
        may_be_infinite: Whether infinity is in it.
    """

    least: float = -math.inf
    most: float = math.inf
    may_be_infinite: bool = False

    def __str__(self) -> str:
        lower = "" if self.least == -math.inf else f"of at least {self.least:g}"
        upper = "" if self.most == math.inf else f"at most {self.most:g}"
        return " and ".join(filter(None, [lower, upper]))


Count: TypeAlias = Annotated[int, Within(1)]
Natural: TypeAlias = Annotated[int, Within(0)]
Seed: TypeAlias = Annotated[int, Within(0)]
Amount: TypeAlias = Annotated[float, Within(0)]
Part: TypeAlias = Annotated[float, Within(0, 1)]
Extended: TypeAlias = Annotated[float, Within(0, may_be_infinite=True)]

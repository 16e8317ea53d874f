"""A placed gate in a trace, as data."""

from dataclasses import dataclass

from diffprune._graph import Groups
from diffprune._graph.axes import Axis
from diffprune._graph.rule_api import Value


@dataclass(frozen=True, eq=False)
class Link:
    """A placed gate: what it reads, what it writes, along one dimension."""

    gate: str
    x: Value
    out: Value
    dim: int


def axis_of(groups: Groups, value: Value, dim: int) -> Axis:
    """What a dimension of a value is made of."""
    return groups.solution.algebra.resolve(value.axes[dim])

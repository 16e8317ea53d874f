"""All groups of a model. Knows nothing of gates, nor how groups are found."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from diffprune._graph.axes import Atom, Axis, volume
from diffprune._graph.describe import describe
from diffprune._graph.group import FrozenAxis, PruneGroup
from diffprune._graph.infer import Solution
from diffprune._graph.rule_api import Axes
from diffprune._graph.tracked_int import Attribute
from diffprune.errors import UnknownNameError


@dataclass(frozen=True)
class Groups(Sequence[PruneGroup]):
    """All groups of a model, by position or by name, and what is frozen.

    Attributes:
        groups: What can be cut.
        frozen: What cannot, and why.
        attributes: The axis whose length each module attribute must have.
        tensors: The axes of every parameter and buffer.
        products: Factors whose product is the multiply-adds of one op, per op.
        solution: Everything the trace said.
    """

    groups: tuple[PruneGroup, ...]
    frozen: tuple[FrozenAxis, ...]
    attributes: Mapping[Attribute, Axis] = field(repr=False)
    tensors: Mapping[str, Axes] = field(repr=False)
    products: tuple[Axes, ...] = field(repr=False)
    solution: Solution = field(repr=False, compare=False)

    @overload
    def __getitem__(self, key: int | str) -> PruneGroup: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[PruneGroup]: ...
    def __getitem__(self, key: int | str | slice) -> PruneGroup | Sequence[PruneGroup]:
        if not isinstance(key, str):
            return self.groups[key]
        named = {group.name: group for group in self.groups}
        if key not in named:
            raise UnknownNameError(unknown_group(key, self))
        return named[key]

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[PruneGroup]:
        return iter(self.groups)

    def __str__(self) -> str:
        title = (
            f"{len(self)} groups in a model of {self.parameters():,} parameters "
            f"and {self.macs():,} MACs"
        )
        return "\n".join([title, *describe(self.groups, self.frozen)])

    def parameters(self, sizes: Mapping[Atom, int] | None = None) -> int:
        """Number of parameters of the model when atoms have other sizes."""
        return sum(volume(axes, sizes or {}) for axes in self.solution.parameters())

    def macs(self, sizes: Mapping[Atom, int] | None = None) -> int:
        """Multiply-adds for the example inputs when atoms have other sizes."""
        return sum(volume(axes, sizes or {}) for axes in self.products)


def unknown_group(name: str, groups: Groups) -> str:
    """Explain that there is no such group, and which there are."""
    frozen = [axis for axis in groups.frozen if axis.name == name]
    if frozen:
        return f"`{name}` cannot be cut: {frozen[0].reason}"
    names = ", ".join(f"`{group.name}`" for group in groups)
    return f"there is no group `{name}`; the groups are {names or 'none'}."

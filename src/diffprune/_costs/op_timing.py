"""One op of a trace, run by itself at other widths."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from diffprune._core.leaves import leaves_of
from diffprune._costs.network import Network
from diffprune._graph import Atom, Axes, Solution, Step, Value, atoms, count


@dataclass(frozen=True, eq=False)
class Operation:
    """An op, with the axes of all tensors it reads and makes."""

    step: Step
    solution: Solution

    @property
    def tensors(self) -> list[Axes]:
        """Axes of what it reads, then of what it makes."""
        values = (*self.step.inputs, *self.step.outputs)
        return [self.solution.axes(value) for value in values]

    def classes(self, widths: Sequence[Atom]) -> list[tuple[Atom, ...]]:
        """Widths that matter to it; those at the same places count as one."""
        places: dict[Atom, list[tuple[int, int]]] = {}
        for number, axes in enumerate(self.tensors):
            for dim, axis in enumerate(axes):
                for atom in dict.fromkeys(atoms(axis)):
                    places.setdefault(atom, []).append((number, dim))
        found: dict[tuple[tuple[int, int], ...], list[Atom]] = {}
        for atom in widths:
            if atom in places:
                found.setdefault(tuple(places[atom]), []).append(atom)
        classes = [tuple(same) for same in found.values()]
        together = tuple(atom for same in classes for atom in same)
        return classes if len(classes) <= 2 else [together]

    def at(self, sizes: Mapping[Atom, int]) -> "Runnable":
        """The op when atoms have these sizes."""
        leaves, structure = pytree.tree_flatten((self.step.args, self.step.kwargs))
        node = self.step.node
        seen = fx.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta["val"])
        tensors, _ = pytree.tree_flatten(seen)
        made = [
            torch.empty(self._shape(leaf, sizes), dtype=like.dtype, device="meta")
            if isinstance(leaf, Value)
            else leaf
            for leaf, like in zip(leaves, tensors, strict=True)
        ]
        args, kwargs = pytree.tree_unflatten(made, structure)
        shapes = [self._shape(value, sizes) for value in self.step.outputs]
        return Runnable(self.step.op, self.step.rule.at_widths(args), kwargs, shapes)

    def _shape(self, value: Value, sizes: Mapping[Atom, int]) -> tuple[int, ...]:
        return tuple(count(axis, sizes) for axis in self.solution.axes(value))


@dataclass(frozen=True, eq=False)
class Runnable:
    """An op with its arguments, whose tensors have shapes and no contents."""

    op: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    shapes: Sequence[tuple[int, ...]]

    def on(self, device: torch.device) -> Callable[[], object] | None:
        """The op on tensors of a device; None if it cannot have such tensors."""
        args, kwargs = pytree.tree_map(
            partial(_filled, device=device), (self.args, dict(self.kwargs))
        )
        try:
            results = leaves_of(Tensor, self.op(*args, **kwargs))
        except (RuntimeError, ValueError, TypeError, IndexError):
            return None
        found = [tuple(result.shape) for result in results]
        # Other shapes: an integer argument would have had to change as well.
        return partial(self.op, *args, **kwargs) if found == self.shapes else None

    @property
    def key(self) -> str:
        """What decides how long it takes, as text."""
        leaves = pytree.tree_leaves((self.args, dict(self.kwargs)))
        said = [
            f"{leaf.dtype}{tuple(leaf.shape)}"
            if isinstance(leaf, Tensor)
            else str(leaf)
            for leaf in leaves
        ]
        return f"{self.op} {' '.join(said)}"


def operations(network: Network) -> Iterator[Operation]:
    """The ops of a forward pass that do more than look at a tensor differently."""
    for step in network.steps():
        returns = step.op._schema.returns  # noqa: SLF001 - nothing public says so
        views = [
            r.alias_info is not None and not r.alias_info.is_write for r in returns
        ]
        if not all(views):
            yield Operation(step, network.groups.solution)


def _filled(leaf: object, device: torch.device) -> object:
    if not isinstance(leaf, Tensor):
        return leaf
    # Indices point to the first element, which always exists.
    fill = torch.ones_like if leaf.is_floating_point() else torch.zeros_like
    return fill(leaf, device=device)

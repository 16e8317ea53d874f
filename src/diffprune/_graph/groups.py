"""The groups of a model: which slices go together, what they cost, what is frozen.

`collect` makes `Groups` from a solved trace; printing them gives a table.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import overload

import torch
from torch import Tensor

from diffprune._core.arguments import shown
from diffprune._core.door import door
from diffprune._core.shown import Shown
from diffprune._core.types import Bool
from diffprune._graph.axes import Atom, Axis, atoms, atoms_of, volume
from diffprune._graph.infer import Solution
from diffprune._graph.int_sources import Attribute
from diffprune._graph.rule_api import SPATIAL, Axes, Frozen, Product
from diffprune.errors import ArgumentError, UnknownNameError


@dataclass(frozen=True)
class TensorAxis:
    """One dimension of a parameter or buffer that a group runs along.

    Attributes:
        tensor: Name of the parameter or buffer in the model.
        dim: Which of its dimensions.
        axis: What that dimension is made of; the group is one of its atoms.
        is_read: Whether the model sums over it (the input side of a layer).
        is_parameter: False for buffers.
        is_direction: Whether only the direction of its slices matters, another tensor
            holding their length; such slices cannot be zero.
    """

    tensor: str
    dim: int
    axis: Axis = field(repr=False)
    is_read: bool
    is_parameter: bool
    is_direction: bool


@dataclass(frozen=True)
class PruneGroup:
    """Units that can be removed one by one, and everything that goes with each.

    Attributes:
        name: The layer that produces the units.
        size: How many units there are.
        axes: The tensor dimensions to index together.
        parameters: Parameters that go with one unit.
        macs: Multiply-adds that go with one unit, for the example inputs.
        atom: What `sizes=` of `Groups.macs` calls these units.
        is_exact: Whether removing closed units changes no output. It does where norms
            take statistics over the units, which `norms="narrow"` allows.
    """

    name: str
    size: int
    axes: tuple[TensorAxis, ...] = field(repr=False)
    parameters: int
    macs: int
    atom: Atom = field(repr=False, compare=False)
    is_exact: bool = True


@dataclass(frozen=True)
class FrozenAxis:
    """Units that may not be cut, and why.

    Attributes:
        name: The layer that produces the units.
        size: How many units there are.
        reason: Why, the op and the line that say so, and what would free them.
    """

    name: str
    size: int
    reason: Frozen

    def __str__(self) -> str:
        return f"{self.name} ({self.size} units): {self.reason}"


@dataclass(frozen=True)
class Groups(Sequence[PruneGroup]):
    """All groups of a model, by position or by name, and what is frozen.

    Attributes:
        groups: What can be cut.
        frozen: What cannot, and why.
        attributes: The axis whose length each module attribute must have.
        tensors: The axes of every parameter and buffer.
        products: The multiply-adds of every op that has any.
        solution: Everything the trace said.
    """

    groups: tuple[PruneGroup, ...]
    frozen: tuple[FrozenAxis, ...]
    attributes: Mapping[Attribute, Axis] = field(repr=False)
    tensors: Mapping[str, Axes] = field(repr=False)
    products: tuple[Product, ...] = field(repr=False)
    solution: Solution = field(repr=False, compare=False)

    @property
    def sizes(self) -> dict[str, int]:
        """How many units each group has, by name."""
        return {group.name: group.size for group in self.groups}

    @door
    def keep(self, masks: Mapping[str, Bool[Tensor, " units"]]) -> "Groups":
        """The groups of the model that is left when only some units are kept.

        Args:
            masks: For each group that loses units, by name, which of them stay.

        Returns:
            New groups. These ones, and whoever holds them, stay as they are.

        Examples:
            >>> import torch
            >>> from diffprune import find_groups
            >>> layers = torch.nn.Linear(3, 5), torch.nn.Linear(5, 2)
            >>> groups = find_groups(torch.nn.Sequential(*layers), torch.rand(1, 3))
            >>> groups.keep({"0": torch.arange(5) < 4}).sizes, groups.sizes
            ({'0': 4}, {'0': 5})
        """
        for name, mask in masks.items():
            is_whole = mask.dtype == torch.bool and not mask.is_meta
            if not is_whole or mask.shape != (self[name].size,):
                raise ArgumentError(
                    f"masks: that for `{name}` must be a boolean vector of "
                    f"{self[name].size} units, got {shown(mask)}."
                )
        kept = {self[name].atom: int(mask.sum()) for name, mask in masks.items()}
        return self.narrowed(kept)

    def narrowed(self, sizes: Mapping[Atom, int]) -> "Groups":
        """The groups of a model whose atoms have other sizes; these stay as they are.

        Args:
            sizes: New numbers of units, also of atoms that are no group of their own.
        """
        solution = replace(self.solution, algebra=self.solution.algebra.narrowed(sizes))
        resolve = solution.algebra.resolve
        tensors = {n: tuple(map(resolve, axes)) for n, axes in self.tensors.items()}
        products = tuple(
            Product(tuple(map(resolve, axes)), module) for axes, module in self.products
        )
        parameters = _per_unit(solution.parameters())
        macs = _per_unit(axes for axes, _ in products)

        def narrowed(group: PruneGroup) -> PruneGroup:
            (atom,) = atoms(resolve((group.atom,)))
            return replace(
                group,
                size=atom.size,
                axes=tuple(
                    replace(p, axis=tensors[p.tensor][p.dim]) for p in group.axes
                ),
                parameters=parameters.get(atom, 0),
                macs=macs.get(atom, 0),
                atom=atom,
            )

        return replace(
            self,
            groups=tuple(map(narrowed, self.groups)),
            attributes={key: resolve(axis) for key, axis in self.attributes.items()},
            tensors=tensors,
            products=products,
            solution=solution,
        )

    @overload
    def __getitem__(self, key: int | str) -> PruneGroup: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[PruneGroup]: ...
    def __getitem__(self, key: int | str | slice) -> PruneGroup | Sequence[PruneGroup]:
        if not isinstance(key, str):
            return self.groups[key]
        if key not in self._named:
            raise UnknownNameError(unknown_group(key, self))
        return self._named[key]

    @cached_property
    def _named(self) -> dict[str, PruneGroup]:
        return {group.name: group for group in self.groups}

    def __deepcopy__(self, memo: object) -> "Groups":
        return self  # nothing of them ever changes, and a trace cannot be copied

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[PruneGroup]:
        return iter(self.groups)

    def __repr__(self) -> str:
        return str(self._shown())

    def __str__(self) -> str:
        return str(self._shown())

    def _repr_html_(self) -> str:
        return self._shown()._repr_html_()

    def _shown(self) -> Shown:
        title = (
            f"{len(self)} groups in a model of {self.parameters():,} parameters "
            f"and {self.macs():,} MACs"
        )
        return _shown(title, self.groups, self.frozen)

    def parameters(self, sizes: Mapping[Atom, int] | None = None) -> int:
        """Number of parameters of the model when atoms have other sizes.

        Args:
            sizes: By `PruneGroup.atom`, how many units there are; all by default.
        """
        return sum(volume(axes, sizes or {}) for axes in self.solution.parameters())

    def macs(self, sizes: Mapping[Atom, int] | None = None) -> int:
        """Multiply-adds for the example inputs when atoms have other sizes.

        Args:
            sizes: By `PruneGroup.atom`, how many units there are; all by default.
        """
        return sum(volume(axes, sizes or {}) for axes, _ in self.products)

    def macs_by_module(self) -> dict[str, int]:
        """Multiply-adds for the example inputs of what happens in every module itself.

        Examples:
            >>> from torch import nn
            >>> from diffprune import find_groups
            >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
            >>> find_groups(model, torch.rand(1, 2)).macs_by_module()
            {'0': 6, '2': 3}
        """
        counts = Counter[str]()
        for axes, module in self.products:
            counts[module] += volume(axes, {})
        return dict(counts)


def unknown_group(name: str, groups: Groups) -> str:
    """Explain that there is no such group, and which there are."""
    frozen = [axis for axis in groups.frozen if axis.name == name]
    if frozen:
        return f"`{name}` cannot be cut: {frozen[0].reason}"
    names = ", ".join(f"`{group.name}`" for group in groups)
    return f"there is no group `{name}`; the groups are {names or 'none'}."


def collect(solution: Solution, attributes: Mapping[Attribute, Axis]) -> Groups:
    """Gather the free atoms of a solution, with everything that runs along each."""
    tensors = {name: solution.axes(value) for name, value in solution.tensors.items()}
    resolve = solution.algebra.resolve
    products = tuple(
        Product(tuple(map(resolve, axes)), module) for axes, module in solution.products
    )
    along = _tensor_axes(solution, tensors)
    parameters = _per_unit(solution.parameters())
    macs = _per_unit(axes for axes, _ in products)
    names, coupled = _names(solution, along), solution.coupled()
    groups = [
        PruneGroup(
            name=names[atom],
            size=atom.size,
            axes=tuple(axes),
            parameters=parameters.get(atom, 0),
            macs=macs.get(atom, 0),
            atom=atom,
            is_exact=atom not in coupled,
        )
        for atom, axes in along.items()
        if _is_prunable(solution, atom, axes)
    ]
    frozen = [
        FrozenAxis(names[atom], atom.size, reason)
        for atom, axes in along.items()
        if (reason := solution.algebra.reason(atom)) is not None
        and any(axis.is_parameter for axis in axes)
    ]
    return Groups(tuple(groups), tuple(frozen), attributes, tensors, products, solution)


def _tensor_axes(
    solution: Solution, tensors: Mapping[str, Axes]
) -> dict[Atom, list[TensorAxis]]:
    read = {
        (value.name, dim)
        for contraction in solution.facts.contractions
        for value, dim in contraction.operands
        if value.name is not None
    }
    directions = {(value.name, dim) for value, dim in solution.facts.directions}
    along: dict[Atom, list[TensorAxis]] = {}
    for name, axes in tensors.items():
        owner = solution.tensors[name].name
        is_parameter = name in solution.parameter_names
        for dim, axis in enumerate(axes):
            place = TensorAxis(
                tensor=name,
                dim=dim,
                axis=axis,
                is_read=(owner, dim) in read,
                is_parameter=is_parameter,
                is_direction=(owner, dim) in directions,
            )
            for atom in dict.fromkeys(atoms(axis)):
                along.setdefault(atom, []).append(place)
    return along


def _is_prunable(solution: Solution, atom: Atom, axes: Sequence[TensorAxis]) -> bool:
    on_parameter = any(axis.is_parameter for axis in axes)
    return on_parameter and atom.size > 1 and solution.algebra.reason(atom) is None


def _names(
    solution: Solution, along: Mapping[Atom, Sequence[TensorAxis]]
) -> dict[Atom, str]:
    """Name atoms after the layer that makes them; tell several of one layer apart."""
    shared: dict[str, list[Atom]] = {}
    for atom, axes in along.items():
        producer = next((axis for axis in axes if not axis.is_read), axes[0])
        layer = producer.tensor.rpartition(".")[0] or producer.tensor
        shared.setdefault(layer, []).append(atom)
    roles = {
        **dict.fromkeys(_atoms_of(solution, solution.facts.inside_values), "value_dim"),
        **dict.fromkeys(_atoms_of(solution, solution.facts.inside_heads), "head_dim"),
        **dict.fromkeys(_atoms_of(solution, solution.facts.heads), "heads"),
    }
    names: dict[Atom, str] = {}
    for layer, same in shared.items():
        prunable = [atom for atom in same if _is_prunable(solution, atom, along[atom])]
        labels = _labels(same, roles)
        for atom in same:
            alone = prunable in ([atom], [])
            names[atom] = layer if alone else f"{layer}:{labels[atom]}"
    return names


def _labels(same: Sequence[Atom], roles: Mapping[Atom, str]) -> dict[Atom, str]:
    """The role of an atom in its layer, or its number if it has none of its own."""
    labels: dict[Atom, str] = {}
    taken = set[str]()
    for number, atom in enumerate(same):
        role = roles.get(atom, str(number))
        labels[atom] = str(number) if role in taken else role
        taken.add(labels[atom])
    return labels


def _atoms_of(solution: Solution, axes: Sequence[Axis]) -> set[Atom]:
    return atoms_of(map(solution.algebra.resolve, axes))


def _per_unit(everything: Iterable[Axes]) -> dict[Atom, int]:
    """How much the total volume shrinks when an atom loses one unit."""
    found: dict[Atom, int] = {}
    for axes in everything:
        whole = volume(axes, {})
        for atom in atoms_of(axes):
            less = volume(axes, {atom: atom.size - 1})
            found[atom] = found.get(atom, 0) + whole - less
    return found


def _shown(
    title: str, groups: Sequence[PruneGroup], frozen: Sequence[FrozenAxis]
) -> Shown:
    """One line per group, then what is frozen and why."""
    header = ("group", "units", "parameters/unit", "MACs/unit", "where")
    reasons = [f"  {axis}" for axis in frozen if axis.reason.why != SPATIAL]
    return Shown(
        [header, *map(_row, groups)],
        numbers={1, 2, 3},
        before=[title],
        after=["frozen:", *reasons] if reasons else [],
    )


def _row(group: PruneGroup) -> tuple[str, ...]:
    places = [f"{axis.tensor}[{axis.dim}]" for axis in group.axes]
    more = f" +{len(places) - 3}" if places[3:] else ""
    numbers = (f"{group.size:,}", f"{group.parameters:,}", f"{group.macs:,}")
    return (group.name, *numbers, ", ".join(places[:3]) + more)

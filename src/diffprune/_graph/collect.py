"""From a solution to its groups. Knows no ops; decides nothing but names."""

from collections.abc import Iterable, Mapping, Sequence

from diffprune._graph.axes import Atom, Axis, atoms, volume
from diffprune._graph.group import FrozenAxis, PruneGroup, TensorAxis
from diffprune._graph.groups import Groups
from diffprune._graph.infer import Solution
from diffprune._graph.rule_api import Axes
from diffprune._graph.tracked_int import Attribute


def collect(solution: Solution, attributes: Mapping[Attribute, Axis]) -> Groups:
    """Gather the free atoms of a solution, with everything that runs along each."""
    tensors = {name: solution.axes(value) for name, value in solution.tensors.items()}
    products = tuple(
        tuple(map(solution.algebra.resolve, axes)) for axes in solution.products
    )
    along = _tensor_axes(solution, tensors)
    parameters = _per_unit(solution.parameters())
    macs = _per_unit(products)
    names = _names(solution, along)
    groups = [
        PruneGroup(
            names[atom],
            atom.size,
            tuple(axes),
            parameters.get(atom, 0),
            macs.get(atom, 0),
            atom,
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
        **dict.fromkeys(_atoms_of(solution, solution.facts.inside_heads), "inside"),
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
    for number, atom in enumerate(same):
        role = roles.get(atom, str(number))
        labels[atom] = str(number) if role in labels.values() else role
    return labels


def _atoms_of(solution: Solution, axes: Sequence[Axis]) -> set[Atom]:
    return {atom for axis in axes for atom in atoms(solution.algebra.resolve(axis))}


def _per_unit(everything: Iterable[Axes]) -> dict[Atom, int]:
    """How much the total volume shrinks when an atom loses one unit."""
    found: dict[Atom, int] = {}
    for axes in everything:
        whole = volume(axes, {})
        for atom in dict.fromkeys(atom for axis in axes for atom in atoms(axis)):
            less = volume(axes, {atom: atom.size - 1})
            found[atom] = found.get(atom, 0) + whole - less
    return found

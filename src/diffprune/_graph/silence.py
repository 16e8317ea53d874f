"""What is zero when some slices of the parameters are. Knows no ops.

Summing over an axis is blind to silent units, so they can be removed from it; that is
the test every contraction has to pass before its axis counts as prunable.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias, final

import torch
from torch import Tensor

from diffprune._core.types import Bool, Int
from diffprune._graph.axes import Atom, Axis, Cat, atoms, mask
from diffprune._graph.infer import Solution
from diffprune._graph.rule_api import Value
from diffprune._graph.zeros import Spreading

Silence: TypeAlias = Mapping[Atom, Bool[Tensor, " units"]]
Evidence: TypeAlias = Callable[[str, int], Bool[Tensor, " n"]]


def unit_numbers(axis: Axis, atom: Atom) -> Int[Tensor, " n"]:
    """For each element of the axis, its unit of the atom; -1 where it has none.

    Examples:
        >>> atom = Atom(2)
        >>> unit_numbers((Cat(((atom, Atom(2)), (Atom(3),))),), atom)
        tensor([ 0,  0,  1,  1, -1, -1, -1])
    """
    numbers = torch.full((1,), -1)
    for factor in axis:
        if isinstance(factor, Cat):
            inner = torch.cat([unit_numbers(part, atom) for part in factor.parts])
        elif factor is atom:
            inner = torch.arange(factor.size)
        else:
            inner = torch.full((factor.size,), -1)
        numbers = torch.maximum(numbers[:, None], inner).flatten()
    return numbers


def silent_units(axis: Axis, zero: Bool[Tensor, " n"]) -> Silence:
    """Units of each atom all of whose elements along the axis are zero."""
    found: dict[Atom, Tensor] = {}
    for atom in set(atoms(axis)):
        numbers = unit_numbers(axis, atom)
        loud = torch.zeros(atom.size, dtype=torch.bool)
        loud[numbers[(numbers >= 0) & ~zero]] = True
        found[atom] = ~loud
    return found


@final
class Silencer(Spreading[Tensor]):
    """Which units of every value are silent, given which slices of parameters are zero.

    Args:
        solution: The solved traces.
        evidence: `(name, dim) -> mask`, which slices of a parameter are all zero.
    """

    def __init__(self, solution: Solution, evidence: Evidence) -> None:
        def silent(name: str, dim: int, axis: Axis) -> Silence:
            return silent_units(axis, evidence(name, dim))

        def full(atom: Atom) -> Bool[Tensor, " units"]:
            return torch.ones(atom.size, dtype=torch.bool)

        super().__init__(solution, silent, full)

    def is_zero(self, value: Value) -> bool:
        """Whether all of a value is zero: along one of its axes, no unit speaks."""
        loud = {atom: ~units for atom, units in self.of(value).items()}
        axes = self.solution.axes(value)
        return any(not mask(axis, loud).any() for axis in axes)


def when_zeroed(solution: Solution) -> Spreading[bool]:
    """Which atoms of every value fall silent when those of all parameters do."""

    def silent(name: str, dim: int, axis: Axis) -> Mapping[Atom, bool]:
        del dim
        is_parameter = name in solution.parameter_names
        return dict.fromkeys(atoms(axis), is_parameter)

    return Spreading(solution, silent, lambda _: True)

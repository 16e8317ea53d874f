"""What is zero when some slices of the parameters are.

A value is *silent* at a unit if its whole slice there is zero. `Spreading` follows
zeros from the parameters through every step, as the rules of the ops say: through a
ReLU but not a sigmoid, a product if one factor is zero, a sum if all terms are.
A sum over an axis does not change when silent units are removed from it; that is the
test every contraction has to pass before its axis counts as prunable.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import zip_longest
from operator import and_
from typing import Any, Generic, TypeAlias, final

import torch
from torch import Tensor
from torch._ops import OpOverload

from diffprune._core.types import Bool, Int
from diffprune._graph.axes import Atom, Axis, Cat, atoms, mask, size
from diffprune._graph.infer import Solution, ask
from diffprune._graph.ops import is_in_place
from diffprune._graph.ops.zero_rules import all_of, any_of
from diffprune._graph.rule_api import MaskT, Step, Value

Silence: TypeAlias = Mapping[Atom, Bool[Tensor, " units"]]
Evidence: TypeAlias = Callable[[str, int], Bool[Tensor, " n"]]


class Spreading(Generic[MaskT]):
    """Follows zeros from the parameters through every step of a solution.

    Args:
        solution: The solved traces; its atoms are final.
        evidence: `(name, dim, axis) -> masks`, where the parameters are zero.
        full: The mask that says that all units of an atom are zero.
        steps: Those of the solution that matter; all of them if omitted.
    """

    def __init__(
        self,
        solution: Solution,
        evidence: Callable[[str, int, Axis], Mapping[Atom, MaskT]],
        full: Callable[[Atom], MaskT],
        steps: Iterable[Step] | None = None,
    ) -> None:
        self.solution = solution
        self.full = full
        self._evidence = evidence
        self._known: dict[Value, Mapping[Atom, MaskT]] = {}
        self._atoms: dict[Value, frozenset[Atom]] = {}
        self._memory = Memory()
        for step in solution.steps if steps is None else steps:
            self._spread(step)

    def along(self, value: Value, dim: int) -> Mapping[Atom, MaskT]:
        """Units of the atoms of one dimension of a value whose slices are zero."""
        axis = self.solution.algebra.resolve(value.axes[dim])
        if value.name is not None and value not in self._known:
            return self._evidence(value.name, dim, axis)
        known = self._known.get(value, {})
        return {atom: known[atom] for atom in atoms(axis) if atom in known}

    def of(self, value: Value) -> Mapping[Atom, MaskT]:
        """Units of all atoms of a value whose slices are zero."""
        if value in self._known:
            return self._known[value]
        return any_of([self.along(value, dim) for dim in range(len(value.axes))])

    def atoms(self, value: Value) -> frozenset[Atom]:
        """All atoms of a value."""
        if value not in self._atoms:
            self._atoms[value] = frozenset(self.solution.atoms(value))
        return self._atoms[value]

    def carries(self, value: Value, atom: Atom) -> bool:
        """Whether the value has the atom among its axes."""
        return atom in self.atoms(value)

    def _spread(self, step: Step) -> None:
        zero = ask(step.rule.zeros, step.call.where, self, step)
        self._overwrite(step, zero)
        for output in step.outputs:
            present = self.atoms(output)
            known = {a: m for a, m in zero.items() if a in present}
            self._known[output] = self._everywhere(step, output, known)

    def _everywhere(
        self, step: Step, output: Value, known: Mapping[Atom, MaskT]
    ) -> Mapping[Atom, MaskT]:
        """Leave out what is zero along one of several axes of the same atom.

        `k.mT @ v` of two halves of a projection has its atom twice, and a zero of `v`
        is one along the columns alone. All inputs with the atom have to be zero.
        """
        found = dict(known)
        for atom in self._repeated(output) & known.keys():
            masks = [self.of(v).get(atom) for v in step.inputs if atom in self.atoms(v)]
            zero = [mask for mask in masks if mask is not None]
            if len(zero) == len(masks):
                found[atom] = reduce(and_, zero, found[atom])
            else:
                del found[atom]
        return found

    def _repeated(self, value: Value) -> set[Atom]:
        """Atoms that a value has along more than one of its axes."""
        axes = (set(atoms(axis)) for axis in self.solution.axes(value))
        return {
            atom for atom, n in Counter(a for s in axes for a in s).items() if n > 1
        }

    def _overwrite(self, step: Step, zero: Mapping[Atom, MaskT]) -> None:
        """Change what is known of every value that shares memory with a written one."""
        for other in self._memory.rewritten(step):
            self._known[other] = all_of([self.of(other), zero])


@final
class Memory:
    """Which values of a trace are views of the same memory."""

    def __init__(self) -> None:
        self._sharing: dict[Value, list[Value]] = {}

    def sharing(self, value: Value) -> Sequence[Value]:
        """A value and all that share its memory, as far as steps have been noted."""
        return self._sharing.get(value, (value,))

    def rewritten(self, step: Step) -> list[Value]:
        """Values, other than its outputs, that a step changes; notes what it shares."""
        arguments = (step.op, step.args, step.kwargs)
        changed = [value for value in written(*arguments) if isinstance(value, Value)]
        found = list[Value]()
        for value in changed:
            shared = self._sharing.setdefault(value, [value])
            if is_in_place(step.op) and value is step.args[0]:
                shared[:] = [other for other in shared if other is not value]
            found += shared
        views = [value for value in viewed(*arguments) if isinstance(value, Value)]
        unchanged = step.inputs[:1] if step.rule.may_return_input else ()
        for value in (*changed, *views, *unchanged):
            shared = self._sharing.setdefault(value, [value])
            shared.extend(step.outputs)
            self._sharing.update(dict.fromkeys(step.outputs, shared))
        return found


def unit_numbers(axis: Axis, atom: Atom) -> Int[Tensor, " n"]:
    """For each element of the axis, its unit of the atom; -1 where it has none.

    Examples:
        >>> atom = Atom(2)
        >>> unit_numbers((Cat(((atom, Atom(2)), (Atom(3),))),), atom)
        tensor([ 0,  0,  1,  1, -1, -1, -1])
    """
    nowhere = torch.full((size(axis),), -1)
    return reduce(torch.maximum, unit_occurrences(axis, atom), nowhere)


def unit_occurrences(axis: Axis, atom: Atom) -> list[Int[Tensor, " n"]]:
    """Like `unit_numbers`, once for each time that an element has units of the atom.

    A product of a feature with itself has two: the row and the column.

    Examples:
        >>> atom = Atom(2)
        >>> unit_occurrences((atom, atom), atom)
        [tensor([0, 0, 1, 1]), tensor([0, 1, 0, 1])]
    """
    found = list[Tensor]()
    for place, factor in enumerate(axis):
        before, after = size(axis[:place]), size(axis[place + 1 :])
        inside = _occurrences_inside(factor, atom)
        found += [
            numbers[None, :, None].expand(before, -1, after).flatten()
            for numbers in inside
        ]
    return found


def _occurrences_inside(factor: Atom | Cat, atom: Atom) -> list[Int[Tensor, " n"]]:
    if isinstance(factor, Atom):
        return [torch.arange(factor.size)] if factor is atom else []
    parts = [unit_occurrences(part, atom) for part in factor.parts]
    nothing = [torch.full((size(part),), -1) for part in factor.parts]
    return [
        torch.cat([b if n is None else n for n, b in zip(row, nothing, strict=True)])
        for row in zip_longest(*parts)
    ]


def silent_units(axis: Axis, zero: Bool[Tensor, " n"]) -> Silence:
    """Units of each atom all of whose elements along the axis are zero."""
    found: dict[Atom, Tensor] = {}
    for atom in set(atoms(axis)):
        loud = torch.zeros(atom.size, dtype=torch.bool)
        for numbers in unit_occurrences(axis, atom):
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


def written(
    op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[Any]:
    """Arguments whose elements the op changes: the `x` of `x.add_(1)`."""
    return [value for value, writes in _shared(op, args, kwargs) if writes]


def viewed(
    op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[Any]:
    """Arguments whose memory the output may share: the `x` of `x.view(2, 3)`."""
    return [value for value, writes in _shared(op, args, kwargs) if not writes]


def _shared(
    op: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[tuple[Any, bool]]:
    schema = getattr(op, "_schema", None)  # no public name
    if schema is None:
        return  # no op, such as what `vmap` calls; all that goes through it is frozen
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is None:
            continue
        if position < len(args):
            yield args[position], argument.alias_info.is_write
        elif argument.name in kwargs:
            yield kwargs[argument.name], argument.alias_info.is_write

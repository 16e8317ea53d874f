"""What is zero when some slices of the parameters are. Knows zeros, not why.

A value is *silent* at a unit if its whole slice there is zero. Silence starts in the
parameters and spreads: through a ReLU, not through a sigmoid; through a product if one
factor is silent, through a sum if all terms are. Summing over an axis is blind to
silent units, so they can be removed from it; that is the test every contraction has to
pass before its axis counts as prunable.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Final, TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from diffprune._typing import Bool, Int
from diffprune.graph.axes import Atom, Axis, Cat, atoms
from diffprune.graph.call import Value
from diffprune.graph.rules import (
    Rule,
    attention,
    contractions,
    indexing,
    normalisation,
    pointwise,
    recurrent,
    reductions,
    shapes,
    spatial,
)
from diffprune.graph.solve import Solution, Step

aten = torch.ops.aten
Silence: TypeAlias = Mapping[Atom, Bool[Tensor, " units"]]
Evidence: TypeAlias = Callable[[str, int], Bool[Tensor, " n"]]


def unit_numbers(axis: Axis, atom: Atom) -> Int[Tensor, " n"]:
    """For each element of the axis, its unit of the atom; -1 where it has none."""
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


class Silencer:
    """Spreads silence from the parameters through every step of a solution.

    Args:
        solution: The solved traces.
        evidence: `(name, dim) -> mask`, which slices of a parameter are all zero.
    """

    def __init__(self, solution: Solution, evidence: Evidence) -> None:
        self.solution = solution
        self._evidence = evidence
        self._known: dict[Value, Silence] = {}
        for step in solution.steps:
            self._spread(step)

    def along(self, value: Value, dim: int) -> Silence:
        """Silent units of the atoms that make up one dimension of a value."""
        axis = self.solution.algebra.resolve(value.axes[dim])
        if value.name is not None and value not in self._known:
            return silent_units(axis, self._evidence(value.name, dim))
        known = self._known.get(value, {})
        return {atom: known[atom] for atom in set(atoms(axis)) if atom in known}

    def of(self, value: Value) -> Silence:
        """Silent units of all atoms of a value."""
        per_dim = [self.along(value, dim) for dim in range(len(value.axes))]
        return _any(per_dim)

    def carries(self, value: Value, atom: Atom) -> bool:
        """Whether the value has the atom among its axes."""
        axes = self.solution.axes(value)
        return any(atom in set(atoms(axis)) for axis in axes)

    def _spread(self, step: Step) -> None:
        spread = _BY_OP.get(step.packet) or _BY_RULE.get(step.rule, _nothing)
        silence = spread(self, step)
        for output in step.outputs:
            axes = self.solution.axes(output)
            present = {atom for axis in axes for atom in atoms(axis)}
            self._known[output] = {a: m for a, m in silence.items() if a in present}


def _any(found: Iterable[Silence]) -> Silence:
    total: dict[Atom, Tensor] = {}
    for silence in found:
        for atom, mask in silence.items():
            total[atom] = total[atom] | mask if atom in total else mask
    return total


def _all(found: Iterable[Silence]) -> Silence:
    def both(one: Silence, other: Silence) -> Silence:
        return {atom: one[atom] & other[atom] for atom in one.keys() & other.keys()}

    return reduce(both, found)


Spread: TypeAlias = Callable[[Silencer, Step], Silence]


def _first(s: Silencer, step: Step) -> Silence:
    return s.of(step.inputs[0])


def _product(s: Silencer, step: Step) -> Silence:
    return _any(s.of(value) for value in step.inputs)


def _carriers(s: Silencer, step: Step) -> Silence:
    """Concatenation: a unit is where it is, whatever the other parts hold."""
    found = [(value, s.of(value)) for value in step.inputs]
    total: dict[Atom, Tensor] = {}
    for atom in {atom for _, silence in found for atom in silence}:
        masks = [
            silence.get(atom, torch.zeros(atom.size, dtype=torch.bool))
            for value, silence in found
            if s.carries(value, atom)
        ]
        total[atom] = reduce(torch.logical_and, masks)
    return total


def _rows(dim: int) -> Callable[[Silencer, Step], Silence]:
    """Affine maps: silent where the rows of the weight and the bias are."""

    def rows(s: Silencer, step: Step) -> Silence:
        _, weight, *bias = step.args[:3]
        if not isinstance(weight, Value):
            return {}
        vectors = [s.along(v, 0) for v in bias if isinstance(v, Value)]
        return _all([s.along(weight, dim), *vectors])

    return rows


def _norm(weight: int) -> Callable[[Silencer, Step], Silence]:
    """Normalisation: silent where scale and shift are."""

    def norm(s: Silencer, step: Step) -> Silence:
        vectors = [*step.args[weight : weight + 2], None, None][:2]
        if not all(isinstance(vector, Value) for vector in vectors):
            return {}
        return _all([s.of(vector) for vector in vectors])

    return norm


def _embedding(s: Silencer, step: Step) -> Silence:
    return s.along(step.args[0], 1)


def _addmm(s: Silencer, step: Step) -> Silence:
    bias, x, y = step.args[:3]
    return _all([s.of(bias), _any([s.of(x), s.of(y)])])


def _attention(s: Silencer, step: Step) -> Silence:
    return s.of(step.args[2])


def _recurrent(s: Silencer, step: Step) -> Silence:
    weights = [v for arg in step.args if isinstance(arg, list | tuple) for v in arg]
    rows = [s.along(v, 0) for v in weights if isinstance(v, Value) and v.name]
    return _all(rows) if rows else {}


def _everything(s: Silencer, step: Step) -> Silence:
    axes = s.solution.axes(step.outputs[0])
    found = {atom for axis in axes for atom in atoms(axis)}
    return {atom: torch.ones(atom.size, dtype=torch.bool) for atom in found}


def _nothing(s: Silencer, step: Step) -> Silence:
    del s, step
    return {}


def _pointwise(s: Silencer, step: Step) -> Silence:
    """Silent where all operands are, if the op maps zeros to zero. It is asked."""
    if not _keeps_zero(step):
        return {}
    values = step.inputs
    common = _all([s.of(value) for value in values])
    return {a: m for a, m in common.items() if all(s.carries(v, a) for v in values)}


def _keeps_zero(step: Step) -> bool:
    def zero(leaf: object) -> object:
        return torch.zeros(1) if isinstance(leaf, Value) else leaf

    args, kwargs = pytree.tree_map(zero, (step.args, dict(step.kwargs)))
    try:
        return bool((step.op(*args, **kwargs) == 0).all())
    except (RuntimeError, TypeError, NotImplementedError):
        return False


_KEEP_ZEROS = (
    *(set(shapes.RULES.values()) - {shapes.cat, shapes.stack, shapes.create}),
    *(set(indexing.RULES.values()) - {indexing.embedding}),
    *set(spatial.RULES.values()),
    pointwise.same, pointwise.prelu, pointwise.glu, reductions.total, reductions.norm,
    reductions.statistic,
)  # fmt: skip
_BY_RULE: Final[Mapping[Rule | None, Spread]] = {
    **dict.fromkeys(_KEEP_ZEROS, _first),
    pointwise.elementwise: _pointwise,
    contractions.linear: _rows(0),
    contractions.conv: _rows(0),
    contractions.conv_transpose: _rows(1),
    contractions.matmul: _product,
    contractions.outer: _product,
    contractions.einsum: _product,
    contractions.addmm: _addmm,
    normalisation.weight_norm: _product,
    normalisation.batch_norm: _norm(1),
    normalisation.layer_norm: _norm(2),
    normalisation.group_norm: _norm(2),
    shapes.cat: _carriers,
    shapes.stack: _carriers,
    indexing.embedding: _embedding,
    attention.scaled_dot_product_attention: _attention,
    recurrent.lstm: _recurrent,
    recurrent.gru: _recurrent,
}
_BY_OP: Final[Mapping[object, Spread]] = {
    aten.mul: _product,
    aten.div: _first,
    aten.rms_norm: _product,
    aten.zeros: _everything,
    aten.zeros_like: _everything,
    aten.new_zeros: _everything,
    **dict.fromkeys(
        (
            aten.ones_like,
            aten.full_like,
            aten.rand_like,
            aten.randn_like,
            aten.fill,
            aten.empty_like,
            aten.new_ones,
            aten.new_empty,
            aten.new_full,
            aten.argmax,
            aten.argmin,
            aten.logsumexp,
            aten.all,
            aten.any,
        ),
        _nothing,
    ),  # fmt: skip
}

"""How silence spreads through each op. Knows zeros, not where they come from.

A value is *silent* at a unit if its whole slice there is zero. Silence spreads through
a ReLU, not through a sigmoid; through a product if one factor is silent, through a sum
if all terms are. What says which units of an atom are silent is a boolean mask, or one
boolean for all of them: whatever has `&` and `|`.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from typing import Any, Final, Generic, TypeAlias, TypeVar

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from diffprune._graph.aliases import replaces_first, viewed, written
from diffprune._graph.axes import Atom, Axis, atoms
from diffprune._graph.infer import Solution, Step
from diffprune._graph.ops import (
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
from diffprune._graph.rule_api import Value

aten = torch.ops.aten
MaskT = TypeVar("MaskT", bool, Tensor)


class Spreading(Generic[MaskT]):
    """Spreads silence from the parameters through every step of a solution.

    Args:
        solution: The solved traces; its atoms are final.
        evidence: `(name, dim, axis) -> masks`, where the parameters are silent.
        full: The mask that says that all units of an atom are silent.
    """

    def __init__(
        self,
        solution: Solution,
        evidence: Callable[[str, int, Axis], Mapping[Atom, MaskT]],
        full: Callable[[Atom], MaskT],
    ) -> None:
        self.solution = solution
        self.full = full
        self._evidence = evidence
        self._known: dict[Value, Mapping[Atom, MaskT]] = {}
        self._atoms: dict[Value, frozenset[Atom]] = {}
        self._sharing: dict[Value, list[Value]] = {}
        for step in solution.steps:
            self._spread(step)

    def along(self, value: Value, dim: int) -> Mapping[Atom, MaskT]:
        """Silent units of the atoms that make up one dimension of a value."""
        axis = self.solution.algebra.resolve(value.axes[dim])
        if value.name is not None and value not in self._known:
            return self._evidence(value.name, dim, axis)
        known = self._known.get(value, {})
        return {atom: known[atom] for atom in atoms(axis) if atom in known}

    def of(self, value: Value) -> Mapping[Atom, MaskT]:
        """Silent units of all atoms of a value."""
        if value in self._known:
            return self._known[value]
        return _any([self.along(value, dim) for dim in range(len(value.axes))])

    def atoms(self, value: Value) -> frozenset[Atom]:
        """All atoms of a value."""
        if value not in self._atoms:
            found = (atoms(axis) for axis in self.solution.axes(value))
            self._atoms[value] = frozenset(atom for some in found for atom in some)
        return self._atoms[value]

    def carries(self, value: Value, atom: Atom) -> bool:
        """Whether the value has the atom among its axes."""
        return atom in self.atoms(value)

    def _spread(self, step: Step) -> None:
        spread = _BY_OP.get(step.packet) or _BY_RULE.get(step.rule, _nothing)
        silence = spread(self, step)
        self._overwrite(step, silence)
        for output in step.outputs:
            present = self.atoms(output)
            self._known[output] = {a: m for a, m in silence.items() if a in present}

    def _overwrite(self, step: Step, silence: Mapping[Atom, MaskT]) -> None:
        """Let whatever shares memory with a changed value hear of it."""
        arguments = (step.op, step.args, step.kwargs)
        changed = [value for value in written(*arguments) if isinstance(value, Value)]
        for value in changed:
            shared = self._sharing.setdefault(value, [value])
            if replaces_first(step.op) and value is step.args[0]:
                shared[:] = [other for other in shared if other is not value]
            for other in shared:
                self._known[other] = _all([self.of(other), silence])
        views = [value for value in viewed(*arguments) if isinstance(value, Value)]
        # In eval mode dropout returns its argument itself, which no schema says.
        unchanged = step.inputs[:1] if step.rule is pointwise.same else ()
        for value in (*changed, *views, *unchanged):
            shared = self._sharing.setdefault(value, [value])
            shared.extend(step.outputs)
            self._sharing.update(dict.fromkeys(step.outputs, shared))


def _any(found: Iterable[Mapping[Atom, MaskT]]) -> Mapping[Atom, MaskT]:
    total: dict[Atom, MaskT] = {}
    for silence in found:
        for atom, mask in silence.items():
            total[atom] = total[atom] | mask if atom in total else mask
    return total


def _all(found: Iterable[Mapping[Atom, MaskT]]) -> Mapping[Atom, MaskT]:
    def both(
        one: Mapping[Atom, MaskT], other: Mapping[Atom, MaskT]
    ) -> Mapping[Atom, MaskT]:
        return {atom: one[atom] & other[atom] for atom in one.keys() & other.keys()}

    return reduce(both, found)


Spread: TypeAlias = Callable[[Spreading[Any], Step], Mapping[Atom, Any]]


def _first(s: Spreading[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    return s.of(step.inputs[0])


def _product(s: Spreading[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    return _any(s.of(value) for value in step.inputs)


def _carriers(s: Spreading[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    """Concatenation: silent where every part that has the unit is."""
    loud: set[Atom] = set()
    total: dict[Atom, MaskT] = {}
    for value in step.inputs:
        silence = s.of(value)
        loud |= s.atoms(value) - silence.keys()
        for atom, mask in silence.items():
            total[atom] = total[atom] & mask if atom in total else mask
    return {atom: mask for atom, mask in total.items() if atom not in loud}


def _rows(dim: int) -> Spread:
    """Affine maps: silent where the rows of the weight and the bias are."""

    def rows(s: Spreading[MaskT], step: Step) -> Mapping[Atom, MaskT]:
        _, weight, *bias = step.args[:3]
        if not isinstance(weight, Value):
            return {}
        vectors = [s.along(v, 0) for v in bias if isinstance(v, Value)]
        return _all([s.along(weight, dim), *vectors])

    return rows


def _norm(weight: int) -> Spread:
    """Normalisation: silent where scale and shift are."""

    def norm(s: Spreading[MaskT], step: Step) -> Mapping[Atom, MaskT]:
        vectors = [v for v in step.args[weight : weight + 2] if isinstance(v, Value)]
        return _all(map(s.of, vectors)) if len(vectors) == 2 else {}

    return norm


def _embedding(s: Spreading[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    return s.along(step.args[0], 1)


def _addmm(s: Spreading[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    bias, x, y = step.args[:3]
    return _all([s.of(bias), _any([s.of(x), s.of(y)])])


def _attention(s: Spreading[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    return s.of(step.args[2])


def _recurrent(s: Spreading[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    """Silent where the rows of all weights are, and the state was."""
    states = 2 if step.packet in {aten.lstm, aten.lstm_cell} else 1
    _, *read = step.inputs
    rows = [s.along(weight, 0) for weight in read[states:]]
    return _all([*map(s.of, read[:states]), *rows])


def _pad(s: Spreading[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    """Padding with anything but zeros or the tensor's own elements is heard."""
    return (
        {}
        if any(isinstance(n, float) and n for n in _scalars(step))
        else _first(s, step)
    )


def _scalars(step: Step) -> list[object]:
    return [*step.args, *step.kwargs.values()]


def _everything(s: Spreading[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    return {atom: s.full(atom) for atom in s.atoms(step.outputs[0])}


def _nothing(s: Spreading[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    del s, step
    return {}


def _pointwise(s: Spreading[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    """Silent where all operands are, if the op maps zeros to zero. It is asked."""
    return _all(map(s.of, step.inputs)) if _keeps_zero(step) else {}


def _keeps_zero(step: Step) -> bool:
    def zero(leaf: object) -> object:
        return torch.zeros(1) if isinstance(leaf, Value) else leaf

    args, kwargs = pytree.tree_map(zero, (step.args, dict(step.kwargs)))
    try:
        return bool((step.op(*args, **kwargs) == 0).all())
    except (RuntimeError, TypeError, NotImplementedError):
        return False


_JOIN: Final = (
    shapes.cat, shapes.stack, shapes.hstack, shapes.vstack, shapes.dstack,
    shapes.column_stack,
)  # fmt: skip
_KEEP_ZEROS: Final = (
    *(set(shapes.RULES.values()) - {*_JOIN, shapes.create}),
    *(set(indexing.RULES.values()) - {indexing.embedding}),
    *(set(spatial.RULES.values()) - {spatial.affine_grid}),
    pointwise.same, pointwise.prelu, pointwise.glu, reductions.total, reductions.norm,
    reductions.statistic,
)  # fmt: skip
_LOUD: Final = (
    aten.ones_like, aten.full_like, aten.rand_like, aten.randn_like, aten.empty_like,
    aten.new_ones, aten.new_full, aten.new_empty, aten.fill, aten.argmax, aten.argmin,
    aten.logsumexp, aten.all, aten.any,
)  # fmt: skip
_SILENT: Final = (aten.zeros, aten.zeros_like, aten.new_zeros, aten.zero)

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
    **dict.fromkeys(_JOIN, _carriers),
    indexing.embedding: _embedding,
    spatial.pad: _pad,
    attention.scaled_dot_product_attention: _attention,
    **dict.fromkeys(recurrent.RULES.values(), _recurrent),
}
_BY_OP: Final[Mapping[object, Spread]] = {
    aten.mul: _product,
    aten.div: _first,
    aten.rms_norm: _product,
    **dict.fromkeys(_SILENT, _everything),
    **dict.fromkeys(_LOUD, _nothing),
}

"""What becomes of zeros in an op: the usual answers, for `OpRule.zeros`.

A value is zero at a unit if its whole slice there is. Each function here receives what
is known about the inputs of a step, and returns which units of the output are zero.
"""

from collections.abc import Iterable, Mapping
from functools import reduce

import torch
from torch.utils import _pytree as pytree

from diffprune._graph.axes import Atom
from diffprune._graph.rule_api import MaskT, Step, Value, Zeros


def zero_if_first(zeros: Zeros[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    """Zero where the first input is: reshaping, pooling, dropout."""
    return zeros.of(step.inputs[0])


def zero_if_any(zeros: Zeros[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    """Zero where one of the inputs is: products."""
    return any_of(zeros.of(value) for value in step.inputs)


def zero_if_all(zeros: Zeros[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    """Zero where all inputs are: sums."""
    return all_of(map(zeros.of, step.inputs))


def zero_if_tried(zeros: Zeros[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    """Zero where all inputs are, if the op maps zeros to zero: it is run on some."""
    found = zero_if_all(zeros, step)
    return found if found and _keeps_zero(step) else {}


def zero_if_parts(zeros: Zeros[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    """Zero where every input that has the unit is: concatenation."""
    unknown: set[Atom] = set()
    total: dict[Atom, MaskT] = {}
    for value in step.inputs:
        known = zeros.of(value)
        unknown |= zeros.atoms(value) - known.keys()
        for atom, mask in known.items():
            total[atom] = total[atom] & mask if atom in total else mask
    return {atom: mask for atom, mask in total.items() if atom not in unknown}


def zero_rows(zeros: Zeros[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    """Zero where the rows of all parameters in `OpRule.rows` are: affine maps."""
    return all_of(zeros.along(value, dim) for value, dim in step.rows())


def always_zero(zeros: Zeros[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    """All of the output is zero."""
    return {atom: zeros.full(atom) for atom in zeros.atoms(step.outputs[0])}


def any_of(found: Iterable[Mapping[Atom, MaskT]]) -> Mapping[Atom, MaskT]:
    """Units that are zero in one of these."""
    total: dict[Atom, MaskT] = {}
    for known in found:
        for atom, mask in known.items():
            total[atom] = total[atom] | mask if atom in total else mask
    return total


def all_of(found: Iterable[Mapping[Atom, MaskT]]) -> Mapping[Atom, MaskT]:
    """Units that are zero in all of these; none if nothing is given."""

    def both(
        one: Mapping[Atom, MaskT], other: Mapping[Atom, MaskT]
    ) -> Mapping[Atom, MaskT]:
        return {atom: one[atom] & other[atom] for atom in one.keys() & other.keys()}

    known = list(found)
    return reduce(both, known) if known else {}


def _keeps_zero(step: Step) -> bool:
    given = step.args, dict(step.kwargs)
    args, kwargs = pytree.tree_map_only(Value, lambda _: torch.zeros(1), given)
    try:
        return bool((step.op(*args, **kwargs) == 0).all())
    except (RuntimeError, TypeError, NotImplementedError):
        return False

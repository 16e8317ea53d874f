"""Rules for ops that write into places of a tensor: messages of a graph, memories."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import torch

from diffprune._graph.axes import Atom, Axis, size
from diffprune._graph.ops.indexing import PICKED, along, indexed_dims, is_one_block
from diffprune._graph.ops.zero_rules import all_of, any_of, zero_if_first
from diffprune._graph.rule_api import (
    Anything,
    Axes,
    AxesRule,
    Call,
    MaskT,
    Op,
    OpRule,
    Step,
    Value,
    Zeros,
)

aten = torch.ops.aten


def slices(
    call: Call, x: Value, dim: int, _where: Value, source: Anything, *_how: Anything,
    **_options: Anything,
) -> Axes:  # fmt: skip
    """x, with slices of `source` put or added where one axis has these numbers."""
    written = [source] if isinstance(source, Value) and source.axes else []
    for value in (x, *written):
        call.freeze(value.axes[dim], PICKED)
    return _tied(call, x, written, dim)


def part(call: Call, x: Value, source: Value, dim: int = 0, *_range: Anything) -> Axes:
    """x, with `source` in the place of a slice of it."""
    call.freeze(x.axes[dim], PICKED)
    call.freeze(source.axes[dim], PICKED)
    return _tied(call, x, [source], dim)


def row(call: Call, x: Value, source: Value, dim: int, _index: int) -> Axes:
    """x, with `source` in the place of one element of an axis."""
    dim %= len(x.axes)
    call.freeze(x.axes[dim], PICKED)
    others = (axis for d, axis in enumerate(x.axes) if d != dim)
    for axis, written in zip(others, source.axes, strict=True):
        call.unify(axis, written)
    return x.axes


def _tied(call: Call, x: Value, written: Sequence[Value], dim: int) -> Axes:
    for value in written:
        for d, axis in enumerate(x.axes):
            if d != dim % len(x.axes):
                call.unify(axis, value.axes[d])
    return x.axes


def scattered(
    call: Call, x: Value, dim: int, places: Value, source: Anything, *_how: Anything,
    **_options: Anything,
) -> Axes:  # fmt: skip
    """x, with elements put or added along one axis, elsewhere for all of the others."""
    written = [source] if isinstance(source, Value) else []
    call.freeze(places.axes[dim], PICKED)
    along(call, dim, places, x, *written)
    return x.axes


def put(
    call: Call, x: Value, indices: Sequence[Value | None], values: Value,
    *_accumulate: Anything,
) -> Axes:  # fmt: skip
    """x, with values at numbered places of some axes; axes without numbers stay."""
    pairs = _axes_and_written(x, indices, values)
    places = [written for axis, written in pairs if axis is None]
    given = [picks for picks in indices if picks is not None]
    is_fill = len(given) == 1 and given[0].is_mask and not any(places)
    for nth, dim in enumerate(indexed_dims(indices)):
        if is_fill:  # the same value wherever the mask is true, as in `masked_fill`
            call.unify(x.axes[dim], given[0].axes[nth])
        else:
            call.freeze(x.axes[dim], PICKED)
    for written in places:
        call.freeze(written, PICKED)
    for axis, written in pairs:
        if axis is not None and size(axis) == size(written):
            call.unify(axis, written)
    return x.axes


def _axes_and_written(
    x: Value, indices: Sequence[Value | None], values: Value
) -> list[tuple[Axis | None, Axis]]:
    """The axis of x that each axis of the values lies on; None for picked places."""
    indexed = indexed_dims(indices)
    given = [picks for picks in indices if picks is not None]
    picked = max(1 if picks.is_mask else len(picks.axes) for picks in given)
    kept = [axis for dim, axis in enumerate(x.axes) if dim not in indexed]
    first = indexed[0] if is_one_block(indexed) else 0
    target = [*kept[:first], *[None] * picked, *kept[first:]]
    return [*zip(reversed(target), reversed(values.axes), strict=False)]


def zero_if_written(
    zeros: Zeros[MaskT], step: Step, *, place: int
) -> Mapping[Atom, MaskT]:
    """Zero where the tensor is, and where the argument at this place is, too."""
    written = step.argument(place)
    if not isinstance(written, Value):
        return zero_if_first(zeros, step) if written == 0 else {}
    return all_of(zeros.of(value) for value in (step.inputs[0], written))


def zero_if_put(zeros: Zeros[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    """Zero where the tensor is, and where zero or nothing is written."""
    x, indices, values = step.args[:3]
    masks = [picks for picks in indices if picks is not None and picks.is_mask]
    return all_of([zeros.of(x), any_of(map(zeros.of, [values, *masks]))])


def _rule(axes: AxesRule, written: int) -> OpRule:
    return OpRule(axes, zeros=partial(zero_if_written, place=written))


_SLICES = (aten.index_add, aten.index_copy, aten.index_reduce, aten.index_fill)
_SCATTERED = (aten.scatter, aten.scatter_add, aten.scatter_reduce)

RULES: Final[Mapping[Op, OpRule]] = {
    **dict.fromkeys(_SLICES, _rule(slices, 3)),
    **dict.fromkeys(_SCATTERED, _rule(scattered, 3)),
    aten.slice_scatter: _rule(part, 1),
    aten.select_scatter: _rule(row, 1),
    aten.index_put: OpRule(put, zeros=zero_if_put),
}

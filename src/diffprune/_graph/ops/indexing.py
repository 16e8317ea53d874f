"""Rules for ops that pick parts of an axis: slices, splits, look-ups."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import torch

from diffprune._graph.axes import Axis, Cat, size
from diffprune._graph.ops.zero_rules import zero_if_first, zero_rows
from diffprune._graph.rule_api import (
    Anything,
    Axes,
    Call,
    Op,
    OpRule,
    Unsupported,
    Value,
)

aten = torch.ops.aten
PICKED = "single elements of it are picked by their position"


def _replace(x: Value, dim: int, axis: Axis) -> Axes:
    axes = list(x.axes)
    axes[dim] = axis
    return tuple(axes)


def _range(length: int, start: int | None, end: int | None) -> tuple[int, int]:
    first, last, _ = slice(start, end).indices(length)
    return first, max(first, last)


def slice_(
    call: Call,
    x: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Axes:
    """Elements `start` to `end` of one axis."""
    length = x.shape[dim]
    first, last = _range(length, start, end)
    if last - first == length and step == 1:
        call.require_if_computed(end, x.axes[dim])
        return x.axes
    if first == length and step == 1:  # nothing, as in `x[..., rotary_dim:]`
        call.require_if_computed(start, x.axes[dim])
        return _replace(x, dim, *call.frozen(PICKED, 0))
    if last - first == 1 and start in (None, 0, -1) and not call.is_used:
        return _replace(x, dim, ())  # `x[:, :1]` in `torch.ones_like(x[:, :1])`
    if first < step and step * call.shape[dim] == length:
        return _replace(x, dim, _every(call, x.axes[dim], step, end))
    if step != 1 or last == first:
        call.freeze(x.axes[dim], PICKED)
        return _replace(x, dim, *call.frozen(PICKED, call.shape[dim]))
    bounds = [0, *sorted({first, last} - {0, length}), length]
    lengths = [after - before for before, after in pairwise(bounds)]
    segments = call.cut(x.axes[dim], lengths)
    chosen = bounds.index(first)
    _require_bounds(call, segments, chosen, (start, end))
    return _replace(x, dim, segments[chosen])


def _every(call: Call, axis: Axis, step: int, end: int | None) -> Axis:
    """The units of which one element is read, as by `x[..., 1::2]`: whole ones stay."""
    units, inside = call.split(axis, [size(axis) // step, step])
    call.freeze(inside, PICKED)
    call.require_if_computed(end, axis)
    return units


def alias(call: Call, x: Value) -> Axes:
    """A slice of everything, as `x[:, : y.shape[1]]` may be."""
    for length in [n for n, source in call.integers if source is not None]:
        along = [axis for axis in x.axes if size(axis) == length]
        if len(along) == 1:
            call.require(length, along[0])
    return x.axes


def _require_bounds(
    call: Call, segments: Axes, chosen: int, bounds: tuple[int | None, int | None]
) -> None:
    """Both ends of a slice must move with the widths before and inside it."""
    start, end = bounds
    before = segments[:chosen]
    inside = segments[: chosen + 1]
    for bound, parts in ((start, before), (end, inside)):
        if bound is None or not parts:
            continue
        if bound >= sum(map(size, segments)):
            call.require_if_computed(bound, _joined(segments))
            continue
        if bound < 0:
            parts = segments[len(parts) :]  # noqa: PLW2901 - counted from the other end
        call.require(bound, _joined(parts))


def _joined(parts: Axes) -> Axis:
    """Segments in a row as one axis: a position behind them counts them all."""
    return parts[0] if len(parts) == 1 else (Cat(parts),)


def narrow(call: Call, x: Value, dim: int, start: int | Value, length: int) -> Axes:
    """`length` elements of one axis from `start`."""
    if isinstance(start, Value):
        call.freeze(x.axes[dim], PICKED)
        return _replace(x, dim, *call.frozen(PICKED, length))
    before, after = start, x.shape[dim] - start - length
    lengths = [n for n in (before, length, after) if n]
    segments = call.cut(x.axes[dim], lengths)
    if before:
        call.require(start, segments[0])
    call.require(length, segments[1 if before else 0])
    return _replace(x, dim, segments[1 if before else 0])


def select(call: Call, x: Value, dim: int, index: int) -> Axes:
    """One element of an axis; the axis is gone."""
    if call.is_used or index not in (0, -1):  # not where `x[0].numel()` is all
        call.freeze(x.axes[dim], PICKED)
    dim %= len(x.axes)
    return (*x.axes[:dim], *x.axes[dim + 1 :])


def unbind(call: Call, x: Value, dim: int = 0) -> list[Axes]:
    """Every element of an axis by itself."""
    return [select(call, x, dim, 0)] * x.shape[dim]


def split(call: Call, x: Value, length: int, dim: int = 0) -> list[Axes]:
    """Segments of one length."""
    segments = _equal_segments(call, x, dim)
    call.require(length, segments[0])
    return [_replace(x, dim, segment) for segment in segments]


def chunk(call: Call, x: Value, chunks: int, dim: int = 0) -> list[Axes]:
    """A number of equal segments."""
    del chunks
    return [_replace(x, dim, segment) for segment in _equal_segments(call, x, dim)]


def tensor_split(
    call: Call, x: Value, where: int | Sequence[int], dim: int = 0
) -> list[Axes]:
    """A number of equal segments, or segments between given positions."""
    if isinstance(where, int):
        return chunk(call, x, where, dim)
    lengths = [shape[dim] for shape in call.shapes]
    segments = call.cut(x.axes[dim], lengths)
    for count, position in enumerate(where, 1):
        call.require(position, _joined(segments[:count]))
    return [_replace(x, dim, segment) for segment in segments]


def _equal_segments(call: Call, x: Value, dim: int) -> Axes:
    lengths = [shape[dim] for shape in call.shapes]
    segments = call.cut(x.axes[dim], lengths)
    for segment in segments[1:]:
        if size(segment) == size(segments[0]):
            call.unify(segments[0], segment)
        else:
            call.freeze(x.axes[dim], "split into unequal parts")
    return segments


def split_with_sizes(
    call: Call, x: Value, lengths: Sequence[int], dim: int = 0
) -> list[Axes]:
    """Segments of given lengths."""
    segments = call.cut(x.axes[dim], lengths)
    for length, segment in zip(lengths, segments, strict=True):
        call.require(length, segment)
    return [_replace(x, dim, segment) for segment in segments]


def embedding(call: Call, weight: Value, indices: Value, *_options: Anything) -> Axes:
    """y[..., d] = w[x[...], d]."""
    call.freeze(weight.axes[0], "its rows are looked up by number")
    call.layer_widths(weight, embedding_dim=weight.axes[1])
    return (*indices.axes, weight.axes[1])


def embedding_bag(
    call: Call, weight: Value, *_indices_and_options: Anything
) -> list[Axes]:
    """y[bag, d] = sum, mean or maximum of w[x, d] in the bag; then what it counts."""
    call.freeze(weight.axes[0], "its rows are looked up by number")
    call.layer_widths(weight, embedding_dim=weight.axes[1])
    (bags, _), *counts = call.shapes
    looked_up = "numbers of rows that are looked up"
    return [
        (*call.frozen(looked_up, bags), weight.axes[1]),
        *(call.frozen(looked_up, *shape) for shape in counts),
    ]


def index_select(call: Call, x: Value, dim: int, index: Value) -> Axes:
    """Elements of one axis, by number."""
    call.freeze(x.axes[dim], PICKED)
    return _replace(x, dim, index.axes[0] if index.axes else ())


def index(call: Call, x: Value, indices: Sequence[Value | None]) -> Axes:
    """Elements picked by tensors of positions; axes without one stay."""
    indexed = indexed_dims(indices)
    for dim in indexed:
        call.freeze(x.axes[dim], PICKED)
    kept = [dim for dim in range(len(x.axes)) if dim not in indexed]
    out = list(call.fresh(*call.shape))
    added = len(out) - len(kept)
    first = indexed[0] if is_one_block(indexed) else 0
    places = [i for i in range(len(out)) if not first <= i < first + added]
    for place, dim in zip(places, kept, strict=True):
        out[place] = x.axes[dim]
    for place in set(range(len(out))) - set(places):
        call.freeze(out[place], PICKED)
    return tuple(out)


def indexed_dims(indices: Sequence[Value | None]) -> list[int]:
    """The dimensions that positions are given for: a mask gives as many as it has.

    Examples:
        >>> mask = Value(((), ()), is_mask=True)
        >>> indexed_dims([None, Value(((),))]), indexed_dims([mask, None])
        ([1], [0, 1])
    """
    dims, dim = list[int](), 0
    for picks in indices:
        width = len(picks.axes) if picks is not None and picks.is_mask else 1
        if picks is not None:
            dims.extend(range(dim, dim + width))
        dim += width
    return dims


def is_one_block(dims: Sequence[int]) -> bool:
    """Whether dimensions follow each other; what is picked then takes their place."""
    return list(dims) == list(range(dims[0], dims[-1] + 1))


def all_places(call: Call, x: Value) -> list[Axes]:
    """Numbers of the elements that are not zero."""
    for axis in x.axes:
        call.freeze(axis, PICKED)
    return [call.frozen(PICKED, *shape) for shape in call.shapes]


def all_picked(call: Call, x: Value, mask: Value) -> Axes:
    """The elements at which a mask is true, in a row."""
    for axis in (*x.axes, *mask.axes):
        call.freeze(axis, PICKED)
    return call.frozen(PICKED, *call.shape)


def buckets(call: Call, x: Value, bounds: Value, **_options: Anything) -> Axes:
    """Between which bounds each element lies."""
    call.freeze(bounds.axes[0], "its elements are compared")
    return x.axes


def places_among(call: Call, bounds: Value, x: Value, **_options: Anything) -> Axes:
    """Where each element of y[..., m] would be inserted into x[..., n]."""
    call.freeze(bounds.axes[-1], "its elements are compared")
    for axis, same in zip(bounds.axes[:-1], x.axes[:-1], strict=False):
        call.unify(axis, same)
    return x.axes


def gather(call: Call, x: Value, dim: int, picks: Value, **_options: Anything) -> Axes:
    """Elements along one axis, other picks for every position of the others."""
    along(call, dim, picks, x)
    return picks.axes


def take_along(call: Call, x: Value, picks: Value, dim: int | None = None) -> Axes:
    """Elements along one axis; one pick may be for all positions of another axis."""
    if dim is None:
        raise Unsupported
    for value in (x, picks):
        call.freeze(value.axes[dim], PICKED)
    return call.broadcast([Value(_replace(x, dim, ())), picks])


def along(call: Call, dim: int, picks: Value, *values: Value) -> None:
    """Say that positions along one axis are picked, others for each of the other axes.

    Args:
        call: The op.
        dim: The axis.
        picks: Positions, one for every element that is read or written.
        values: What is read, or written.
    """
    for value in values:
        call.freeze(value.axes[dim], PICKED)
    for d, axis in enumerate(picks.axes):
        if d == dim % len(picks.axes):
            continue
        axes = [value.axes[d] for value in values]
        if all(size(other) == size(axis) for other in axes):
            for other in axes:
                call.unify(axis, other)
        else:  # only their first elements are read or written
            for other in (axis, *axes):
                call.freeze(other, PICKED)


RULES: Final[Mapping[Op, OpRule]] = {
    aten.alias: OpRule(alias, zeros=zero_if_first, passes_scale=True),
    aten.slice: OpRule(slice_, zeros=zero_if_first),
    aten.narrow: OpRule(narrow, zeros=zero_if_first),
    aten.select: OpRule(select, zeros=zero_if_first),
    aten.unbind: OpRule(unbind, zeros=zero_if_first),
    aten.split: OpRule(split, zeros=zero_if_first),
    aten.chunk: OpRule(chunk, zeros=zero_if_first),
    aten.tensor_split: OpRule(tensor_split, zeros=zero_if_first),
    aten.split_with_sizes: OpRule(split_with_sizes, zeros=zero_if_first),
    aten.embedding: OpRule(embedding, zeros=zero_rows, rows=((0, 1),)),
    aten.embedding_bag: OpRule(embedding_bag, zeros=zero_rows, rows=((0, 1),)),
    aten.index_select: OpRule(index_select, zeros=zero_if_first),
    aten.index: OpRule(index, zeros=zero_if_first),
    aten.gather: OpRule(gather, zeros=zero_if_first),
    aten.take_along_dim: OpRule(take_along, zeros=zero_if_first),
    aten.where.default: OpRule(all_places),
    aten.nonzero: OpRule(all_places),
    aten.nonzero_numpy: OpRule(all_places),
    aten.argwhere: OpRule(all_places),
    aten.masked_select: OpRule(all_picked),
    aten.bucketize: OpRule(buckets),
    aten.searchsorted.Tensor: OpRule(places_among),
}

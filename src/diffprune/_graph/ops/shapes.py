"""Rules for ops that only rearrange: reshape, permute, concatenate, expand."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

import torch

from diffprune._graph.axes import Axis, Cat
from diffprune._graph.ops.zero_rules import (
    always_zero,
    zero_if_all,
    zero_if_first,
    zero_if_parts,
)
from diffprune._graph.rule_api import (
    Anything,
    Axes,
    AxesRule,
    Call,
    Op,
    OpRule,
    Value,
)

aten = torch.ops.aten


def reshape(call: Call, x: Value, lengths: Sequence[int]) -> Axes:
    """All axes of the input as one product, divided anew."""
    everything: Axis = tuple(chain.from_iterable(x.axes))
    out = call.split(everything, call.shape)
    for length, axis in zip(lengths, out, strict=True):
        if length != -1:
            call.require(length, axis)
    return out


def flatten(call: Call, x: Value, *_dims: int) -> Axes:
    """Neighbouring axes become one product."""
    return call.split(tuple(chain.from_iterable(x.axes)), call.shape)


def unflatten(call: Call, x: Value, dim: int, lengths: Sequence[int]) -> Axes:
    """One axis becomes several."""
    dim %= len(x.axes)
    pieces = call.split(x.axes[dim], call.shape[dim : dim + len(lengths)])
    for length, axis in zip(lengths, pieces, strict=True):
        if length != -1:
            call.require(length, axis)
    return (*x.axes[:dim], *pieces, *x.axes[dim + 1 :])


def view_as(call: Call, x: Value, like: Value) -> Axes:
    """Reshape to the shape of another tensor."""
    out = flatten(call, x)
    for axis, theirs in zip(out, like.axes, strict=True):
        call.unify(axis, theirs)
    return out


def permute(call: Call, x: Value, dims: Sequence[int]) -> Axes:
    """Axes in another order."""
    del call
    return tuple(x.axes[dim] for dim in dims)


def transpose(call: Call, x: Value, first: int, second: int) -> Axes:
    """Two axes swapped."""
    del call
    axes = list(x.axes)
    axes[first], axes[second] = axes[second], axes[first]
    return tuple(axes)


def transpose_matrix(call: Call, x: Value) -> Axes:
    """The last two axes swapped (`.t()`, `.mT`), or all of them reversed (`.T`)."""
    del call
    return (*x.axes[:-2], *reversed(x.axes[-2:]))


def reverse(call: Call, x: Value) -> Axes:
    """All axes in reverse order."""
    del call
    return tuple(reversed(x.axes))


def movedim(call: Call, x: Value, source: Anything, destination: Anything) -> Axes:
    """Some axes moved elsewhere."""
    del call
    order = torch.empty(tuple(range(1, len(x.axes) + 1)), device="meta")
    moved = torch.movedim(order, source, destination).shape
    return tuple(x.axes[length - 1] for length in moved)


def squeeze(call: Call, x: Value, dim: int | Sequence[int] | None = None) -> Axes:
    """Axes of length one dropped; a longer axis is never dropped."""
    del call
    chosen = (
        range(len(x.axes)) if dim is None else [dim] if isinstance(dim, int) else dim
    )
    dropped = {d % len(x.axes) for d in chosen if not x.axes[d]}
    return tuple(axis for d, axis in enumerate(x.axes) if d not in dropped)


def unsqueeze(call: Call, x: Value, dim: int) -> Axes:
    """An axis of length one added."""
    dim %= len(call.shape)
    return (*x.axes[:dim], (), *x.axes[dim:])


def cat(call: Call, values: Sequence[Value], dim: int = 0) -> Axes:
    """Axes laid end to end along `dim`; all others are shared."""
    values = [value for value in values if value.shape != (0,)]
    out = list(values[0].axes)
    for value in values[1:]:
        for d, axis in enumerate(value.axes):
            if d != dim % len(out):
                call.unify(out[d], axis)
    parts = [value.axes[dim] for value in values if value.shape[dim]]
    out[dim] = (Cat(tuple(parts)),) if len(parts) > 1 else (*parts, out[dim])[0]
    return tuple(call.algebra.resolve(axis) for axis in out)


def hstack(call: Call, values: Sequence[Value]) -> Axes:
    """Laid end to end along the second axis, or the only one."""
    flat = [_at_least(value, 1) for value in values]
    return cat(call, flat, 0 if len(flat[0].axes) == 1 else 1)


def vstack(call: Call, values: Sequence[Value]) -> Axes:
    """Laid end to end along the first of two or more axes."""
    return cat(call, [_at_least(value, 2) for value in values], 0)


def dstack(call: Call, values: Sequence[Value]) -> Axes:
    """Laid end to end along the third axis; vectors run along the second."""
    return cat(call, [_at_least(value, 3) for value in values], 2)


def column_stack(call: Call, values: Sequence[Value]) -> Axes:
    """Vectors become columns, which are laid side by side."""
    columns = [
        v if len(v.axes) > 1 else Value((*_at_least(v, 1).axes, ())) for v in values
    ]
    return cat(call, columns, 1)


def _at_least(value: Value, dims: int) -> Value:
    """The value with axes of length one added, as `torch.atleast_3d` and such do."""
    axes = value.axes or ((),)
    if len(axes) == 1 and dims > 1:
        axes = ((), *axes)
    return Value((*axes, *((),) * (dims - len(axes))))


def stack(call: Call, values: Sequence[Value], dim: int = 0) -> Axes:
    """A new axis along `dim`; all others are shared."""
    for value in values[1:]:
        for axis, other in zip(values[0].axes, value.axes, strict=True):
            call.unify(axis, other)
    dim %= len(call.shape)
    position: Axis = (Cat(((),) * len(values)),) if len(values) > 1 else ()
    return (*values[0].axes[:dim], position, *values[0].axes[dim:])


def expand(call: Call, x: Value, lengths: Sequence[int], **_options: Anything) -> Axes:
    """Axes of length one repeated, new ones added in front."""
    added = len(lengths) - len(x.axes)
    axes = (*call.fresh(*call.shape[:added]), *x.axes)
    out = list(axes)
    for dim, length in enumerate(lengths):
        if length != -1:
            out[dim] = axes[dim] or call.algebra.fresh(length)
            call.require(length, out[dim])
    return tuple(out)


def expand_as(call: Call, x: Value, like: Value) -> Axes:
    """Expanded to the shape of another tensor."""
    return call.broadcast([x, like])


def broadcast_tensors(call: Call, values: Sequence[Value]) -> Axes:
    """Each expanded to the shape that all of them have together."""
    return call.broadcast(values)


def repeat(call: Call, x: Value, times: Sequence[int]) -> Axes:
    """The whole tensor again and again: y[(r i)] = x[i]."""
    missing = len(times) - len(x.axes)
    times, out = (*(1,) * -missing, *times), list[Axis]()
    for n, axis in zip(times, ((),) * missing + x.axes, strict=True):
        (copies,) = call.fresh(n)
        call.require(n, copies)
        out.append((*copies, *axis))
    return tuple(out)


def repeat_interleave(
    call: Call,
    x: Value,
    times: int | Value,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> Axes:
    """Every element several times: y[(i r)] = x[i]."""
    axes = list(x.axes)
    if dim is None or isinstance(times, Value):
        why = "repeated a number of times known only at run time"
        for axis in axes if dim is None else [axes[dim]]:
            call.freeze(axis, why)
        if dim is None:
            return call.frozen(why, *call.shape)
        (axes[dim],) = call.frozen(why, call.shape[dim])
        return tuple(axes)
    (copies,) = call.fresh(times)
    call.require(times, copies)
    axes[dim] = (*axes[dim], *copies)
    if output_size is not None:
        call.require(output_size, axes[dim], last=True)
    return tuple(axes)


def create(
    call: Call, lengths: Sequence[int], *_args: Anything, **_more: Anything
) -> Axes:
    """A new tensor of a given shape."""
    out = call.fresh(*call.shape)
    for length, axis in zip(lengths, out, strict=True):
        call.require(length, axis)
    return out


def meshgrid(call: Call, values: Sequence[Value], indexing: str = "ij") -> list[Axes]:
    """One tensor for each vector, which it repeats along the axes of the others."""
    axes = [value.axes[0] if value.axes else () for value in values]
    if indexing == "xy":
        axes[:2] = axes[1::-1]
    return [tuple(axes)] * len(call.shapes)


def count_up(call: Call, *_args: Anything, **_more: Anything) -> Axes:
    """A new tensor of numbers that rise: every element tells its position."""
    return call.frozen(
        "its positions are counted, and would be others after a cut", *call.shape
    )


def create_like(
    call: Call, x: Value, lengths: Sequence[int], *_args: Anything, **_more: Anything
) -> Axes:
    """A new tensor of a given shape and the type of another."""
    del x
    return create(call, lengths)


def pixel_shuffle(call: Call, x: Value, factor: int) -> Axes:
    """y[n, c, (h r), (w s)] = x[n, (c r s), h, w]."""
    *batch, channels, height, width = x.axes
    side = x.shape[-3] // factor**2
    c, r, s = call.split(channels, [side, factor, factor])
    for axis in (r, s):
        call.freeze(axis, "these channels become neighbouring pixels")
    return (*batch, c, (*height, *r), (*width, *s))


def pixel_unshuffle(call: Call, x: Value, factor: int) -> Axes:
    """y[n, (c r s), h, w] = x[n, c, (h r), (w s)]."""
    *batch, channels, height, width = x.axes
    h, r = call.split(height, [x.shape[-2] // factor, factor])
    w, s = call.split(width, [x.shape[-1] // factor, factor])
    return (*batch, (*channels, *r, *s), h, w)


def channel_shuffle(call: Call, x: Value, groups: int) -> Axes:
    """y[n, (k g), ...] = x[n, (g k), ...]."""
    group, within = call.split(x.axes[1], [groups, x.shape[1] // groups])
    call.require(groups, group)
    return (x.axes[0], (*within, *group), *x.axes[2:])


def _rearranged(axes: AxesRule) -> OpRule:
    """The same elements elsewhere: a zero stays one, a factor stays the same."""
    return OpRule(axes, zeros=zero_if_first, passes_scale=True)


def _repeated(axes: AxesRule) -> OpRule:
    return OpRule(axes, zeros=zero_if_first)


def _joined(axes: AxesRule) -> OpRule:
    return OpRule(axes, zeros=zero_if_parts)


NEW: Final = (aten.new_ones, aten.new_empty, aten.new_full, aten.new_zeros)
"""Ops that read no more of a tensor than its type."""
_WINDOWS: Final = (
    aten.hann_window, aten.hamming_window, aten.blackman_window, aten.bartlett_window,
    aten.kaiser_window,
)  # fmt: skip

RULES: Final[Mapping[Op, OpRule]] = {
    **dict.fromkeys((aten.view, aten.reshape, aten._unsafe_view), _rearranged(reshape)),
    **dict.fromkeys((aten.flatten, aten.ravel), _rearranged(flatten)),
    aten.unflatten: _rearranged(unflatten),
    **dict.fromkeys((aten.view_as, aten.reshape_as), _repeated(view_as)),
    aten.permute: _rearranged(permute),
    **dict.fromkeys(
        (aten.transpose, aten.swapaxes, aten.swapdims), _rearranged(transpose)
    ),
    **dict.fromkeys(
        (aten.t, aten.mT, aten.adjoint, aten.matrix_H), _rearranged(transpose_matrix)
    ),
    aten.numpy_T: _rearranged(reverse),
    **dict.fromkeys((aten.movedim, aten.moveaxis), _rearranged(movedim)),
    aten.squeeze: _rearranged(squeeze),
    aten.unsqueeze: _rearranged(unsqueeze),
    **dict.fromkeys((aten.cat, aten.concat, aten.concatenate), _joined(cat)),
    aten.hstack: _joined(hstack),
    **dict.fromkeys((aten.vstack, aten.row_stack), _joined(vstack)),
    aten.dstack: _joined(dstack),
    aten.column_stack: _joined(column_stack),
    aten.stack: _joined(stack),
    **dict.fromkeys((aten.expand, aten.broadcast_to), _repeated(expand)),
    aten.expand_as: _repeated(expand_as),
    aten.broadcast_tensors: OpRule(broadcast_tensors, zeros=zero_if_all),
    **dict.fromkeys((aten.repeat, aten.tile), _repeated(repeat)),
    aten.repeat_interleave: _repeated(repeat_interleave),
    **dict.fromkeys(
        (aten.ones, aten.empty, aten.full, aten.rand, aten.randn), OpRule(create)
    ),
    **dict.fromkeys(
        (aten.arange, aten.linspace, aten.logspace, aten.eye, aten.randperm),
        OpRule(count_up),
    ),
    **dict.fromkeys((aten.tril_indices, aten.triu_indices), OpRule(count_up)),
    **dict.fromkeys(_WINDOWS, OpRule(count_up)),
    aten.zeros: OpRule(create, zeros=always_zero),
    aten.meshgrid: OpRule(meshgrid),
    **dict.fromkeys(NEW, OpRule(create_like)),
    aten.new_zeros: OpRule(create_like, zeros=always_zero),
    aten.pixel_shuffle: _repeated(pixel_shuffle),
    aten.pixel_unshuffle: _repeated(pixel_unshuffle),
    aten.channel_shuffle: _repeated(channel_shuffle),
}

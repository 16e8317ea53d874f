"""Rules for ops on images and sequences that treat every channel alike."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import torch

from diffprune._graph.axes import Atom, Cat, atoms, size
from diffprune._graph.ops.zero_rules import zero_if_first
from diffprune._graph.rule_api import (
    AS_POSITIONS,
    SPATIAL,
    Anything,
    Axes,
    Axis,
    Call,
    MaskT,
    Op,
    OpRule,
    Step,
    Value,
    Zeros,
)

aten = torch.ops.aten
COORDINATES: Final = "coordinates of places, not channels"
_RANK: Final = re.compile(r"([123])d")


def resample(call: Call, x: Value, *_args: Anything, **_more: Anything) -> Axes:
    """Pooling, interpolation: new spatial axes, channels as they were."""
    rank = _rank(call)
    lengths = call.shape[-rank:]
    return (*x.axes[:-rank], *slid_along(call, x.axes[-rank:], lengths, [False] * rank))


def pool(
    call: Call, x: Value, window: Sequence[int], stride: Sequence[int] = (),
    padding: Anything = 0, *_more: Anything,
) -> Axes:  # fmt: skip
    """Statistics of a window that slides over the last axes."""
    rank = _rank(call)
    still = points(window, stride or window, padding)
    places = slid_along(call, x.axes[-rank:], call.shape[-rank:], still)
    return (*x.axes[:-rank], *places)


def _rank(call: Call) -> int:
    """Along how many axes an op slides, as its name says."""
    return int(_RANK.findall(call.where.op)[0])


def points(window: Sequence[int], stride: Anything, padding: Anything) -> list[bool]:
    """Along which axes a window sees one element at a time, and all of them.

    Examples:
        >>> points([3, 1], stride=1, padding=[1, 0])
        [False, True]
    """
    steps, sides = (
        list(how) * (len(window) // len(how)) if isinstance(how, list | tuple)
        else [0 if isinstance(how, str) else how] * len(window)
        for how in (stride, padding)
    )  # fmt: skip
    zipped = zip(window, steps, sides, strict=True)
    return [(length, step, side) == (1, 1, 0) for length, step, side in zipped]


def slid_along(
    call: Call, axes: Axes, lengths: Sequence[int], still: Sequence[bool]
) -> Axes:
    """The positions that a window has along axes, whose units are positions.

    Where these are channels, the reason says so, also of what is made of them. Axes
    along which the window is `still`, as `points` says, stay as they are.
    """
    out = list[Axis]()
    for axis, length, stays in zip(axes, lengths, still, strict=True):
        if stays and size(axis) == length:
            out.append(axis)
            continue
        call.freeze(axis, AS_POSITIONS)
        found = map(call.algebra.reason, atoms(call.algebra.resolve(axis)))
        are_channels = any(r is not None and r.why == AS_POSITIONS for r in found)
        out += call.frozen(AS_POSITIONS if are_channels else SPATIAL, length)
    return tuple(out)


def pad(
    call: Call, x: Value, amounts: Sequence[int], *how: Anything, **more: Anything
) -> Axes:
    """Elements added at the ends of the last axes: [constants | x | constants]."""
    out = list[Axis](x.axes)
    modes = [mode for mode in (*how, *more.values()) if isinstance(mode, str)]
    are_constant = modes in ([], ["constant"])
    for i in range(len(amounts) // 2):
        dim = len(out) - 1 - i
        before, after = amounts[2 * i], amounts[2 * i + 1]
        if before == after == 0:
            continue
        if are_constant and min(before, after) >= 0 and _may_be_cut(call, out[dim]):
            out[dim] = _between(call, before, out[dim], after)
        else:
            call.freeze(out[dim], AS_POSITIONS)
            (out[dim],) = call.frozen(SPATIAL, size(out[dim]) + before + after)
    return tuple(out)


def _may_be_cut(call: Call, axis: Axis) -> bool:
    found = atoms(call.algebra.resolve(axis))
    return any(call.algebra.reason(atom) is None for atom in found)


def _between(call: Call, before: int, axis: Axis, after: int) -> Axis:
    """The axis with so many new elements on either side."""
    sides = [call.fresh(*([amount] if amount else [])) for amount in (before, after)]
    for amount, side in zip((before, after), sides, strict=True):
        for added in side:
            call.require(amount, added)
    return (Cat((*sides[0], axis, *sides[1])),)


def grid_sample(call: Call, x: Value, grid: Value, *_args: Anything) -> Axes:
    """Pixels looked up at computed places; channels as they were."""
    for axis in x.axes[2:]:
        call.freeze(axis, AS_POSITIONS)
    call.unify(x.axes[0], grid.axes[0])
    call.freeze(grid.axes[-1], COORDINATES)
    return (*x.axes[:2], *grid.axes[1:-1])


def affine_grid(
    call: Call, transforms: Value, shape: Sequence[int], *_args: Anything
) -> Axes:
    """Places to look pixels up at; how many channels the image has does not matter."""
    call.require(shape[0], transforms.axes[0])
    call.integers.clear()
    for axis in transforms.axes[1:]:
        call.freeze(axis, COORDINATES)
    return (transforms.axes[0], *call.frozen(SPATIAL, *call.shape[1:]))


def unfold(call: Call, x: Value, kernel: Sequence[int], *_args: Anything) -> Axes:
    """y[n, (c k l), p] = patches of x[n, c, h, w]."""
    for axis in x.axes[2:]:
        call.freeze(axis, AS_POSITIONS)
    rows, columns, places = call.frozen(SPATIAL, *kernel, call.shape[-1])
    return (x.axes[0], (*x.axes[1], *rows, *columns), places)


def windows(call: Call, x: Value, dim: int, length: int, _step: int) -> Axes:
    """y[..., p, ..., k] = x[..., step * p + k, ...]."""
    call.freeze(x.axes[dim], AS_POSITIONS)
    axes = list(x.axes)
    (axes[dim],) = call.frozen(SPATIAL, call.shape[dim % len(x.axes)])
    return (*axes, *call.frozen(SPATIAL, length))


def fold(call: Call, x: Value, *_args: Anything) -> Axes:
    """y[n, c, h, w] = sum of the patches x[n, (c k l), p] that lie there."""
    *batch, patches, places = x.axes
    call.freeze(places, AS_POSITIONS)
    inside = x.shape[-2] // call.shape[len(batch)]
    c, within = call.split(patches, [call.shape[len(batch)], inside])
    call.freeze(within, AS_POSITIONS)
    return (*batch, c, *call.frozen(SPATIAL, *call.shape[-2:]))


_POOLS = (
    aten.max_pool1d, aten.max_pool2d, aten.max_pool3d, aten.avg_pool1d, aten.avg_pool2d,
    aten.avg_pool3d,
)  # fmt: skip
_RESAMPLE = (
    aten.adaptive_avg_pool1d, aten.adaptive_avg_pool2d,
    aten.adaptive_avg_pool3d, aten.upsample_nearest1d, aten.upsample_nearest2d,
    aten.upsample_nearest3d, aten.upsample_linear1d, aten.upsample_bilinear2d,
    aten.upsample_trilinear3d, aten.upsample_bicubic2d, aten._upsample_nearest_exact1d,
    aten._upsample_nearest_exact2d, aten._upsample_bilinear2d_aa,
    aten._upsample_bicubic2d_aa, aten.adaptive_max_pool1d, aten.adaptive_max_pool2d,
    aten.adaptive_max_pool3d, aten.max_pool1d_with_indices,
    aten.max_pool2d_with_indices, aten.max_pool3d_with_indices,
)  # fmt: skip


def _zero_padding(zeros: Zeros[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    """Zero where the input is, unless it is padded with another number."""
    scalars = [*step.args, *step.kwargs.values()]
    other = any(isinstance(number, float) and number for number in scalars)
    return {} if other else zero_if_first(zeros, step)


_RESAMPLED = OpRule(resample, zeros=zero_if_first, passes_scale=True)

RULES: Final[Mapping[Op, OpRule]] = {
    **dict.fromkeys(_POOLS, replace(_RESAMPLED, axes=pool)),
    **dict.fromkeys(_RESAMPLE, _RESAMPLED),
    **dict.fromkeys((aten.pad, aten.constant_pad_nd), OpRule(pad, zeros=_zero_padding)),
    aten.grid_sampler: OpRule(grid_sample, zeros=zero_if_first),
    aten.affine_grid_generator: OpRule(affine_grid),
    aten.im2col: OpRule(unfold, zeros=zero_if_first),
    aten.unfold: OpRule(windows, zeros=zero_if_first),
    aten.col2im: OpRule(fold, zeros=zero_if_first, passes_scale=True),
}

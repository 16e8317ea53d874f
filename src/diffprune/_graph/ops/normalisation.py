"""Rules for normalisation: an axis that statistics run over couples its units."""

from collections.abc import Mapping, Sequence
from typing import Final

import torch

from diffprune._graph.axes import Atom
from diffprune._graph.ops.zero_rules import (
    all_of,
    zero_if_any,
    zero_if_first,
    zero_rows,
)
from diffprune._graph.rule_api import (
    Anything,
    Axes,
    Call,
    MaskT,
    Op,
    OpRule,
    Step,
    Value,
    Zeros,
)

aten = torch.ops.aten
_WHY = "statistics are taken over it, so every unit affects the others"


def batch_norm(
    call: Call,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None = None,
    variance: Value | None = None,
    *_options: Anything,
    **_more: Anything,
) -> Axes:
    """y[n, c, ...] = (x - mean[c]) / std[c] * w[c] + b[c]; instance norm alike.

    Whatever mode was traced, the model will be trained: by statistics of all else.
    """
    call.match(x.axes[1], weight, bias, mean, variance)
    call.layer_widths(weight or mean, num_features=x.axes[1])
    for axis in (x.axes[0], *x.axes[2:]):
        call.freeze(axis, _WHY)
    return x.axes


def layer_norm(
    call: Call,
    x: Value,
    shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    *_options: Anything,
) -> Axes:
    """Statistics over the last axes, which they couple; RMS norm alike."""
    last = x.axes[-len(shape) :]
    for length, axis in zip(shape, last, strict=True):
        call.couple(axis, _WHY)
        call.require(length, axis)
    for vector in (weight, bias):
        if isinstance(vector, Value):
            for axis, theirs in zip(last, vector.axes, strict=True):
                call.unify(axis, theirs)
    return x.axes


def group_norm(
    call: Call,
    x: Value,
    groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    *_options: Anything,
) -> Axes:
    """Statistics over the channels of one group: groups can be cut, only as a whole."""
    channels = x.axes[1]
    group, within = call.split(channels, [groups, x.shape[1] // groups])
    call.couple(within, _WHY)
    call.require(groups, group)
    call.match(channels, weight, bias)
    call.layer_widths(weight, num_channels=channels)
    return x.axes


def over_dims(
    call: Call, x: Value, dim: Anything = -1, *_args: Anything, **more: Anything
) -> Axes:
    """Softmax, sorting, scans, shifts: every element along `dim` sees the others."""
    dim = more.get("dim", -1) if isinstance(dim, bool) else dim
    for d in [dim] if isinstance(dim, int) else dim:
        call.freeze(x.axes[d], "its elements are combined in order, or compared")
    return x.axes


def over_second(
    call: Call, x: Value, _first: Anything, dim: int | Sequence[int]
) -> Axes:
    """Like `over_dims`, for ops whose second argument is something else."""
    return over_dims(call, x, dim)


def weight_norm(call: Call, v: Value, g: Value, dim: int = 0) -> Axes:
    """W = v * g / |v|: zeros add nothing to the norm, but all of v cannot be zero."""
    call.facts.directions.append((v, dim))
    for i in range(len(v.axes)):
        if i == dim:
            call.unify(v.axes[i], g.axes[i])
        else:
            call.reduce(v, i)
    return v.axes


_OVER_DIM = (
    aten.softmax, aten.log_softmax, aten._softmax, aten._log_softmax,
    aten.logcumsumexp, aten.sort, aten.argsort,
)  # fmt: skip
_SCANS = (aten.cumsum, aten.cumprod, aten.flip)


def _zero_scale_and_shift(zeros: Zeros[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    """Zero where scale and shift are, which may have several dimensions."""
    given = [v for v in map(step.argument, (2, 3)) if isinstance(v, Value)]
    return all_of(map(zeros.of, given)) if len(given) == 2 else {}


_BATCH_NORM = OpRule(batch_norm, zeros=zero_rows, rows=((1, 0), (2, 0)), bias=(2, 1))
_LAYER_NORM = OpRule(layer_norm, zeros=_zero_scale_and_shift, bias=(3, -1))
_GROUP_NORM = OpRule(group_norm, zeros=zero_rows, rows=((2, 0), (3, 0)), bias=(3, 1))

RULES: Final[Mapping[Op, OpRule]] = {
    **dict.fromkeys((aten.batch_norm, aten.instance_norm), _BATCH_NORM),
    aten.layer_norm: _LAYER_NORM,
    aten.rms_norm: OpRule(layer_norm, zeros=zero_if_any),
    aten.group_norm: _GROUP_NORM,
    **dict.fromkeys(_OVER_DIM, OpRule(over_dims)),
    **dict.fromkeys(_SCANS, OpRule(over_dims, zeros=zero_if_first)),
    aten.roll: OpRule(over_second, zeros=zero_if_first),
    aten._weight_norm: OpRule(weight_norm, zeros=zero_if_any),
}

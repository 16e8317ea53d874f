"""Rules for normalisation: an axis that statistics run over couples its units."""

from collections.abc import Mapping, Sequence
from typing import Final

import torch

from diffprune._graph.ops.types import Anything, Op, Rule
from diffprune._graph.rule_api import Axes, Call, Value

aten = torch.ops.aten
_WHY = "statistics are taken over it, so every unit affects the others"


def batch_norm(
    call: Call,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None = None,
    variance: Value | None = None,
    own_statistics: bool = False,
    *_options: Anything,
    **_more: Anything,
) -> Axes:
    """y[n, c, ...] = (x - mean[c]) / std[c] * w[c] + b[c]; instance norm alike."""
    call.match(x.axes[1], weight, bias, mean, variance)
    if own_statistics or mean is None:
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
    """Statistics over the last axes, which are frozen; RMS norm alike."""
    last = x.axes[-len(shape) :]
    for axis in last:
        call.freeze(axis, _WHY)
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
    call.freeze(within, _WHY)
    call.require(groups, group)
    call.match(channels, weight, bias)
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
    aten.softmax, aten.log_softmax, aten._softmax, aten._log_softmax, aten.cumsum,
    aten.cumprod, aten.logcumsumexp, aten.flip, aten.sort, aten.argsort,
)  # fmt: skip

RULES: Final[Mapping[Op, Rule]] = {
    **dict.fromkeys((aten.batch_norm, aten.instance_norm), batch_norm),
    **dict.fromkeys((aten.layer_norm, aten.rms_norm), layer_norm),
    aten.group_norm: group_norm,
    **dict.fromkeys(_OVER_DIM, over_dims),
    aten.roll: over_second,
    aten._weight_norm: weight_norm,
}

"""Rules for ops that reduce axes away."""

from collections.abc import Mapping, Sequence
from typing import Final

import torch

from diffprune._graph.ops.zero_rules import zero_if_all, zero_if_first
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


def _dims(x: Value, dim: int | Sequence[int] | None) -> list[int]:
    if dim is None or dim == []:
        return list(range(len(x.axes)))
    return [d % len(x.axes) for d in ([dim] if isinstance(dim, int) else dim)]


def _without(x: Value, dims: Sequence[int], *, keepdim: bool) -> Axes:
    if keepdim:
        return tuple(() if d in dims else axis for d, axis in enumerate(x.axes))
    return tuple(axis for d, axis in enumerate(x.axes) if d not in dims)


def total(
    call: Call,
    x: Value,
    dim: Anything = None,
    keepdim: bool = False,
    **_more: Anything,
) -> Axes:
    """Sum over axes: what is zero adds nothing."""
    dims = _dims(x, dim)
    for d in dims:
        call.reduce(x, d)
    return _without(x, dims, keepdim=keepdim)


def norm(
    call: Call,
    x: Value,
    order: Anything = 2,
    dim: Anything = None,
    keepdim: bool = False,
    **_more: Anything,
) -> Axes:
    """Norm over axes: what is zero adds nothing, for positive orders."""
    if not isinstance(order, int | float) or order <= 0:
        return statistic(call, x, dim, keepdim)
    return total(call, x, dim, keepdim)


def distances(call: Call, x: Value, y: Value, *_how: Anything) -> Axes:
    """d[..., n, m] = |x[..., n, :] - y[..., m, :]|: zeros of both are no distance."""
    _sum_both(call, x, y, -1)
    *_, rows, columns = out = call.broadcast(_batches(x, y))
    call.unify(rows, x.axes[-2])
    call.unify(columns, y.axes[-2])
    return out


def _batches(*values: Value) -> list[Value]:
    """The values with one row and one column each."""
    return [Value((*value.axes[:-2], (), ())) for value in values]


def distance(call: Call, x: Value, y: Value, *_order: Anything) -> Axes:
    """|x - y| over all axes: zeros of both are no distance."""
    if x.shape != y.shape:
        raise Unsupported
    for dim in range(len(x.axes)):
        _sum_both(call, x, y, dim)
    return ()


def cosine(call: Call, x: Value, y: Value, dim: int = 1, *_eps: Anything) -> Axes:
    """The cosine of slices: zeros of both change neither product nor lengths."""
    if len(x.axes) != len(y.axes) or x.shape[dim] != y.shape[dim]:
        raise Unsupported
    _sum_both(call, x, y, dim)
    dims = [dim % len(x.axes)]
    return call.broadcast(Value(_without(v, dims, keepdim=False)) for v in (x, y))


def _sum_both(call: Call, x: Value, y: Value, dim: int) -> None:
    call.unify(x.axes[dim], y.axes[dim])
    for value in (x, y):
        call.reduce(value, dim)


def statistic(
    call: Call, x: Value, dim: Anything = None, *args: Anything, **kwargs: Anything
) -> Axes:
    """Mean, variance, extremum: depends on how many elements there are.

    What nobody reads may change, such as the mean of attention weights over heads.
    """
    if isinstance(dim, bool):
        dim = None
    dims = _dims(x, dim)
    for d in dims if call.is_used else ():
        call.freeze(x.axes[d], "a statistic is taken over it")
    kept = kwargs.get("keepdim", len(call.shape) == len(x.axes))
    del args
    return _without(x, dims, keepdim=bool(kept))


def average(
    call: Call, x: Value, dim: Anything = None, *args: Anything, **kwargs: Anything
) -> Axes:
    """Mean and variance: one that keeps its dimension is that of a norm."""
    is_kept = len(call.shape) == len(x.axes)
    if isinstance(dim, bool) or not is_kept or not call.is_used:
        return statistic(call, x, dim, *args, **kwargs)
    dims = _dims(x, dim)
    for d in dims:
        call.couple(x.axes[d], "a statistic is taken over it")
    return _without(x, dims, keepdim=True)


def extremum(
    call: Call, x: Value, dim: Anything = None, *args: Anything, **kwargs: Anything
) -> Axes:
    """`max` and `min`: of two tensors, of everything, or along one axis."""
    if isinstance(dim, Value):
        return call.broadcast([x, dim])
    return statistic(call, x, dim, *args, **kwargs)


def ranked(
    call: Call,
    x: Value,
    rank: Anything,
    dim: Anything = None,
    keepdim: bool = False,
    **_more: Anything,
) -> Axes:
    """A quantile, or the k-th smallest element."""
    if isinstance(rank, Value):
        raise Unsupported
    return statistic(call, x, dim, keepdim=keepdim)


def smallest(
    call: Call, x: Value, rank: int, dim: int = -1, keepdim: bool = False
) -> Axes:
    """The k-th smallest element along an axis, the last one if none is named."""
    return ranked(call, x, rank, dim, keepdim)


def apart(
    call: Call, x: Value, y: Value, *_how: Anything, keepdim: bool = False
) -> Axes:
    """|x - y + eps| over the last axis: there is a distance between zeros, too."""
    if len(x.axes) != len(y.axes):
        raise Unsupported
    last = [len(x.axes) - 1]
    for value in (x, y):
        call.freeze(value.axes[-1], "a little distance is added for each of its units")
    return call.broadcast(Value(_without(v, last, keepdim=keepdim)) for v in (x, y))


def topk(call: Call, x: Value, _k: int, dim: int = -1, *_args: Anything) -> Axes:
    """The largest elements along an axis, with their positions."""
    why = "its elements are compared"
    call.freeze(x.axes[dim], why)
    axes = list(x.axes)
    (axes[dim],) = call.frozen(why, call.shape[dim])
    return tuple(axes)


_AVERAGES = (aten.mean, aten.nanmean, aten.var, aten.std, aten.var_mean, aten.std_mean)
_STATISTICS = (
    aten.amax, aten.amin, aten.prod, aten.median, aten.nanmedian, aten.mode,
    aten.aminmax,
)  # fmt: skip
# Of zeros, these are a position, a logarithm or a truth value.
_NOT_ZERO = (aten.argmax, aten.argmin, aten.logsumexp, aten.all, aten.any)

RULES: Final[Mapping[Op, OpRule]] = {
    **dict.fromkeys((aten.sum, aten.nansum), OpRule(total, zeros=zero_if_first)),
    **dict.fromkeys(
        (aten.linalg_vector_norm, aten.norm), OpRule(norm, zeros=zero_if_first)
    ),
    **dict.fromkeys(_AVERAGES, OpRule(average, zeros=zero_if_first)),
    **dict.fromkeys(_STATISTICS, OpRule(statistic, zeros=zero_if_first)),
    **dict.fromkeys(_NOT_ZERO, OpRule(statistic)),
    **dict.fromkeys((aten.max, aten.min), OpRule(extremum, zeros=zero_if_all)),
    aten.topk: OpRule(topk, zeros=zero_if_first),
    **dict.fromkeys(
        (aten.quantile, aten.nanquantile), OpRule(ranked, zeros=zero_if_first)
    ),
    aten.kthvalue: OpRule(smallest, zeros=zero_if_first),
    aten.pairwise_distance: OpRule(apart),
    aten.cdist: OpRule(distances),
    aten.dist: OpRule(distance),
    aten.cosine_similarity: OpRule(cosine),
}

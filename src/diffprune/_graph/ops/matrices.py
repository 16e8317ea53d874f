"""Rules for functions of whole matrices: poses, cameras, flows that are inverted."""

from collections.abc import Mapping, Sequence
from typing import Final

import torch

from diffprune._graph.ops.zero_rules import zero_if_any, zero_if_first
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
_WHY: Final = "every element of the matrix takes part in the result"


def of_matrices(call: Call, *args: Anything, **_options: Anything) -> list[Axes]:
    """f(x[..., :, :]): an inverse, a determinant, a decomposition, a solution."""
    values = [value for value in args if isinstance(value, Value)]
    if len({value.shape[:-2] for value in values}) > 1:
        raise Unsupported
    batch = values[0].axes[:-2]
    for value in values:
        for axis in value.axes[-2:]:
            call.freeze(axis, _WHY)
        for axis, same in zip(batch, value.axes[:-2], strict=True):
            call.unify(axis, same)
    return [(*batch, *call.frozen(_WHY, *shape[len(batch) :])) for shape in call.shapes]


def triangle(call: Call, x: Value, *_diagonal: int) -> Axes:
    """x[..., i, j] where j - i is small, or large, and zeros elsewhere."""
    for axis in x.axes[-2:]:
        call.freeze(axis, "which of its elements stay depends on their position")
    return x.axes


def diagonal(
    call: Call, x: Value, _offset: int = 0, first: int = 0, second: int = 1
) -> Axes:
    """y[..., i] = x[..., i, i]."""
    dims = {dim % len(x.axes) for dim in (first, second)}
    for dim in dims:
        call.freeze(x.axes[dim], _WHY)
    batch = (axis for dim, axis in enumerate(x.axes) if dim not in dims)
    return (*batch, *call.frozen(_WHY, call.shape[-1]))


def on_diagonal(
    call: Call, x: Value, offset: int = 0, first: int = -2, second: int = -1
) -> Axes:
    """y[..., i, i] = x[..., i], and zeros elsewhere: rows and columns go together."""
    if offset:
        raise Unsupported
    axes = list(x.axes[:-1])
    for dim in sorted(dim % len(call.shape) for dim in (first, second)):
        axes.insert(dim, x.axes[-1])
    return tuple(axes)


def cross(call: Call, x: Value, y: Value, *, dim: int = -1) -> Axes:
    """The products of vectors of three, which lie along one axis."""
    for value in (x, y):
        call.freeze(value.axes[dim], _WHY)
    return call.broadcast([x, y])


def turned(call: Call, x: Value, _times: int = 1, dims: Sequence[int] = (0, 1)) -> Axes:
    """A plane of two axes turned by right angles."""
    axes = list(x.axes)
    for dim in dims:
        call.freeze(axes[dim], "its elements change places")
        (axes[dim],) = call.frozen("its elements change places", call.shape[dim])
    return tuple(axes)


_FUNCTIONS = (
    aten.linalg_inv, aten.linalg_inv_ex, aten.inverse, aten.linalg_pinv,
    aten.linalg_det, aten.det, aten.logdet, aten.linalg_slogdet, aten.slogdet,
    aten.matrix_exp, aten.linalg_matrix_exp, aten.linalg_matrix_power,
    aten.linalg_solve, aten.linalg_solve_ex, aten.linalg_cholesky,
    aten.linalg_cholesky_ex, aten.linalg_qr, aten.linalg_svd, aten.linalg_svdvals,
    aten.svd, aten.linalg_eigh, aten.linalg_eigvalsh, aten.trace,
)  # fmt: skip

RULES: Final[Mapping[Op, OpRule]] = {
    **dict.fromkeys(_FUNCTIONS, OpRule(of_matrices)),
    **dict.fromkeys((aten.tril, aten.triu), OpRule(triangle, zeros=zero_if_first)),
    aten.diagonal: OpRule(diagonal, zeros=zero_if_first),
    aten.diag_embed: OpRule(on_diagonal, zeros=zero_if_first),
    aten.linalg_cross: OpRule(cross, zeros=zero_if_any),
    aten.rot90: OpRule(turned),
}

"""Multiplying a tensor by gate values.

While a model is exported the product is one custom operator, so that whoever reads the
graph finds each gate as a single node. Elsewhere it is a plain multiplication, which
costs a fraction of a custom operator's dispatch.
"""

from typing import Any

import torch
from torch import Tensor

from diffprune._core.types import Float

Context = Any  # torch gives it no better type


def multiply(
    x: Float[Tensor, "..."], values: Float[Tensor, "..."], dim: int
) -> Float[Tensor, "..."]:
    """Multiply `x` by `values`, which cover its dimensions from `dim` onwards.

    Examples:
        >>> multiply(torch.ones(2, 3), torch.tensor([0.0, 1.0, 2.0]), 1)
        tensor([[0., 1., 2.],
                [0., 1., 2.]])
    """
    if torch.compiler.is_exporting():
        return _gate(x, values, dim)
    return x * _aligned(values, x, dim)


@torch.library.custom_op("diffprune::gate", mutates_args=())
def _gate(x: Tensor, values: Tensor, dim: int) -> Tensor:
    return x * _aligned(values, x, dim)


def _aligned(values: Tensor, x: Tensor, dim: int) -> Tensor:
    """`values` in the dtype of `x`, with trailing ones to broadcast from `dim` on."""
    after = x.ndim - dim % x.ndim - values.ndim
    return values.to(x.dtype).reshape(*values.shape, *(1,) * after)


def _fake(x: Tensor, values: Tensor, dim: int) -> Tensor:
    del values, dim
    return torch.empty_like(x)


def _setup_context(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
    del output
    x, values, ctx.dim = inputs
    ctx.save_for_backward(x, values)


def _backward(ctx: Context, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    x, values = ctx.saved_tensors
    aligned = _aligned(values, x, ctx.dim)
    grad_values = (grad * x).sum_to_size(aligned.shape)
    return grad * aligned, grad_values.reshape(values.shape).to(values.dtype), None


def _vmap(
    info: Context,
    in_dims: tuple[int | None, int | None, None],
    x: Tensor,
    values: Tensor,
    dim: int,
) -> tuple[Tensor, int]:
    x_dim, values_dim, _ = in_dims
    x = x.expand(info.batch_size, *x.shape) if x_dim is None else x.movedim(x_dim, 0)
    dim = dim % (x.ndim - 1) + 1
    if values_dim is None:
        return _gate(x, values, dim), 0
    values = values.movedim(values_dim, 0)
    # One gate per sample: the batch dimension of the values must meet that of `x`.
    between = (1,) * (dim - 1)
    return _gate(x, values.reshape(len(values), *between, *values.shape[1:]), 0), 0


_gate.register_fake(_fake)
_gate.register_autograd(_backward, setup_context=_setup_context)
_gate.register_vmap(_vmap)

"""The transformation of `transform` for very many units.

Same numbers, a third of the memory traffic: every step that can works in place, and the
gradient is written out. Gradients of gradients take the readable route.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from diffprune._core.types import Float
from diffprune.gates.functional import activate, gate_values
from diffprune.gates.topk import largest

BuiltIn = Literal["sigmoid", "softmax"]
Context = Any  # torch gives it no better type


def lean_transform(
    sample: Float[Tensor, "*batch units"],
    u: BuiltIn,
    background: Float[Tensor, "*#batch"],
    threshold: Float[Tensor, "*#batch #units"],
    spread: Float[Tensor, "*#batch 1"],
    min_open: int,
    origin: Float[Tensor, "*#batch units"] | None = None,
    origin_background: Float[Tensor, "*#batch"] | None = None,
) -> Float[Tensor, "*batch units"]:
    """Gate values of `sample`; the arguments are those of `transform`."""
    moved = origin, origin_background
    apply: Any = _Lean.apply
    return apply(sample, u, background, threshold, spread, min_open, *moved)[0]


class _Lean(torch.autograd.Function):
    @staticmethod
    def forward(
        sample: Tensor,
        u: BuiltIn,
        background: Tensor,
        threshold: Tensor,
        spread: Tensor,
        min_open: int,
        origin: Tensor | None,
        origin_background: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        activation = _activate(sample, u, background)
        is_open = (activation - threshold).gt_(0)
        if origin is not None and origin_background is not None:
            activation = _activate(sample - origin, u, origin_background)
        if min_open:
            is_open.scatter_(-1, largest(sample, min_open), 1.0)
        shift = 1 - _mean_open(activation, is_open) * spread
        values = torch.addcmul(shift, activation, spread).mul_(is_open)
        return values, activation, is_open

    @staticmethod
    def setup_context(
        ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, ...]
    ) -> None:
        sample, ctx.u, background, _, spread, _, origin, moved = inputs
        background = background if moved is None else moved
        _, activation, is_open = output
        ctx.mark_non_differentiable(activation, is_open)
        ctx.set_materialize_grads(False)
        saved = (sample, background, spread, activation, is_open, origin)
        ctx.save_for_backward(*saved)

    @staticmethod
    def backward(ctx: Context, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        if (grad := grads[0]) is None:
            return (None,) * 8
        sample, background, spread, activation, is_open, origin = ctx.saved_tensors
        if torch.is_grad_enabled():  # this gradient may itself be differentiated

            def readable(sample: Tensor, spread: Tensor) -> Tensor:
                moved = sample if origin is None else sample - origin
                return gate_values(activate(moved, ctx.u, background), is_open, spread)

            grad_sample, grad_spread = torch.func.vjp(readable, sample, spread)[1](grad)
        else:
            centred = (grad - _mean_open(grad, is_open)).mul_(is_open)
            weighted = centred.mul_(activation)
            slope = weighted.sum(-1, keepdim=True)
            grad_spread = slope.sum_to_size(spread.shape)
            lost = weighted if ctx.u == "sigmoid" else slope
            grad_sample = weighted.addcmul_(activation, lost, value=-1).mul_(spread)
        return grad_sample, None, None, None, grad_spread, None, None, None

    @staticmethod
    def vmap(
        info: Context,
        in_dims: tuple[int | None, ...],
        *args: Any,  # noqa: ANN401 - those of `forward`
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        sample, u, background, threshold, spread, min_open, origin, moved = args
        if in_dims[0] is None:
            sample = sample.expand(info.batch_size, *sample.shape)
        else:
            sample = sample.movedim(in_dims[0], 0)
        apply: Any = _Lean.apply
        outputs = apply(
            sample,
            u,
            _batch_first(background, in_dims[2], sample.ndim - 1),
            _batch_first(threshold, in_dims[3], sample.ndim),
            _batch_first(spread, in_dims[4], sample.ndim),
            min_open,
            origin if origin is None else _batch_first(origin, in_dims[6], sample.ndim),
            moved
            if moved is None
            else _batch_first(moved, in_dims[7], sample.ndim - 1),
        )
        return outputs, (0, 0, 0)


def _batch_first(x: Tensor, batch_dim: int | None, ndim: int) -> Tensor:
    """Put the batch first and fill up with ones, to broadcast against `ndim` dims."""
    if batch_dim is None:
        return x
    x = x.movedim(batch_dim, 0)
    return x.reshape(len(x), *(1,) * (ndim - x.ndim), *x.shape[1:])


def _activate(sample: Tensor, u: BuiltIn, background: Tensor) -> Tensor:
    if u == "sigmoid":
        return sample.sigmoid()
    share = sample.softmax(-1)
    log_mass = sample.amax(-1) - share.amax(-1).log()
    return share.mul_((log_mass - background).sigmoid().unsqueeze(-1))


def _mean_open(x: Tensor, is_open: Tensor) -> Tensor:
    count = is_open.sum(-1, keepdim=True).clamp(min=1)
    return torch.linalg.vecdot(x, is_open).unsqueeze(-1) / count

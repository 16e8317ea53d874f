"""Layers whose weights have a normal posterior, with noise drawn at their outputs.

Bayesian compression and sparse variational dropout train these. Noise is drawn where it
is cheap: not on the weights, but on what they sum up to (local reparameterisation). In
eval mode the layers are ordinary ones that use the means.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias, final

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear

from diffprune._core.types import Float
from diffprune.errors import ArgumentError
from paper.methods import log_uniform

_TINY: Final = 1e-8
_THRESHOLD: Final = 3.0
_BOUND: Final = 8.0

Op: TypeAlias = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""From inputs, weights and biases to outputs: what is linear in a layer."""


def noisy(
    mean: Float[Tensor, "..."], var: Float[Tensor, "..."]
) -> Float[Tensor, "..."]:
    """A draw with this mean and variance."""
    if torch.compiler.is_exporting():  # in operations that have rules
        return mean + (var + _TINY).sqrt() * torch.randn_like(mean)
    drawn: Tensor = _Draw.apply(mean, var)
    return drawn


@final
class _Draw(torch.autograd.Function):
    """What `noisy` says, in half of the passes over memory; they are what it costs."""

    @staticmethod
    def forward(ctx: Any, mean: Tensor, var: Tensor) -> Tensor:  # noqa: ANN401 - torch's
        twice_std = torch.add(var.new_tensor(4 * _TINY), var, alpha=4).sqrt_()
        noise = _noise_like(mean)
        drawn = torch.addcmul(mean, twice_std, noise, value=0.5)
        ctx.save_for_backward(noise.div_(twice_std))
        return drawn

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401 - torch's
        (slope,) = ctx.saved_tensors
        return grads[0], grads[0] * slope


def _noise_like(mean: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Normal noise, drawn in the order of memory: only that has a fast kernel."""
    noise = torch.empty_like(mean).detach()
    by_stride = sorted(range(mean.ndim), key=noise.stride, reverse=True)
    noise.permute(by_stride).normal_()
    return noise


def normal_divergence(
    mean: Float[Tensor, "..."], log_var: Float[Tensor, "..."]
) -> Float[Tensor, ""]:
    """The divergence of normal posteriors from the standard normal, summed."""
    return 0.5 * (log_var.exp() + mean.square() - 1 - log_var).sum()


class NormalWeights(nn.Module):
    """A linear layer or convolution whose weights and biases are normal.

    Args:
        layer: The layer whose weights become means; its biases are needed.
    """

    def __init__(self, layer: nn.Linear | nn.Conv2d) -> None:
        super().__init__()
        if layer.bias is None:  # pyright: ignore[reportUnnecessaryComparison] - that of a Linear
            raise ArgumentError(f"{layer} has no bias, and its prior covers biases.")
        self.op: Op = op_of(layer)
        self.weight, self.bias = layer.weight, nn.Parameter(layer.bias.detach())
        self.weight_log_var = nn.Parameter(_started(self.weight))
        self.bias_log_var = nn.Parameter(_started(self.bias))

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """What the means make of `x`, in training with the noise of the weights."""
        mean = self.op(x, self.weight, self.bias)
        if not self.training:
            return mean
        weight_var = _laid_out(self.weight_log_var.exp(), like=self.weight)
        var = self.op(x.square(), weight_var, self.bias_log_var.exp())
        return noisy(mean, var)

    def divergence(self) -> Float[Tensor, ""]:
        """What the standard normal prior of all weights costs."""
        weights = normal_divergence(self.weight, self.weight_log_var)
        return weights + normal_divergence(self.bias, self.bias_log_var)


@final
class SparseWeights(nn.Module):
    """A layer of sparse variational dropout (Molchanov, Ashukha and Vetrov, 2017).

    Every weight has a log-uniform prior; those with more noise than signal are zero in
    use. Biases are ordinary.

    Args:
        layer: The layer whose weights become means.
        clip: Whether weights that would be zero in use are zero in training, too.
    """

    def __init__(self, layer: nn.Linear | nn.Conv2d, *, clip: bool = True) -> None:
        super().__init__()
        self.weight, self.bias, self.clip = layer.weight, layer.bias, clip
        self.op: Op = op_of(layer)
        self.log_sigma2 = nn.Parameter(torch.full_like(layer.weight, -10.0))

    def log_alpha(self) -> Float[Tensor, "..."]:
        """How noisy each weight is."""
        return log_uniform.log_alpha(self.weight, self.log_sigma2).clamp(
            -_BOUND, _BOUND
        )

    def sparse(self) -> Float[Tensor, "..."]:
        """The weights in use: zero where there is more noise than signal."""
        return self._used(self.log_alpha())

    def _used(self, log_alpha: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        used = torch.where(log_alpha < _THRESHOLD, self.weight, 0.0)
        return _laid_out(used, like=self.weight)

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """What the weights in use make of `x`; in training with noise."""
        log_alpha = self.log_alpha()
        if not self.training:
            return self.op(x, self._used(log_alpha), self.bias)
        used = self._used(log_alpha) if self.clip else self.weight
        var = _laid_out(log_alpha.exp() * self.weight.square(), like=self.weight)
        return noisy(self.op(x, used, self.bias), self.op(x.square(), var, None))

    def divergence(self) -> Float[Tensor, ""]:
        """What the log-uniform prior of the weights costs."""
        return log_uniform.divergence(self.log_alpha()).sum()


def op_of(layer: nn.Linear | nn.Conv2d) -> Op:
    """What is linear in a layer, for any weights of its shape."""
    if isinstance(layer, nn.Linear):
        return linear
    return _Convolution(layer.stride, layer.padding, layer.dilation)


@final
class _Convolution:
    """A convolution without its weights; plain data, so that it can be copied."""

    def __init__(self, *geometry: tuple[int, ...] | str) -> None:
        self._geometry = geometry

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return conv2d(x, weight, bias, *self._geometry)  # pyright: ignore[reportCallIssue, reportArgumentType] - those of a Conv2d


def _laid_out(
    weights: Float[Tensor, "..."], *, like: Float[Tensor, "..."]
) -> Float[Tensor, "..."]:
    """The same weights in the memory layout of others.

    What is computed from weights of one channel forgets that channels come last, and
    then a convolution writes its outputs in another order than its neighbours do.
    """
    if torch.compiler.is_exporting() or weights.stride() == like.stride():
        return weights
    return torch.empty_like(like).copy_(weights)


def _started(like: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    return -9.0 + 0.01 * torch.randn_like(like)


def replace_layers_(
    model: nn.Module, make: Callable[[nn.Linear | nn.Conv2d], nn.Module]
) -> nn.Module:
    """Put another layer in the place of every linear layer and convolution."""
    for name, layer in [*model.named_modules()]:
        if isinstance(layer, nn.Linear | nn.Conv2d):
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, make(layer))
    return model


def plain_(model: nn.Module, like: nn.Module) -> nn.Module:
    """Copy the weights in use into a plain network of the original's shape.

    Args:
        model: With layers of this file.
        like: The network as it was before; its weights are overwritten.
    """
    for name, layer in model.named_modules():
        if isinstance(layer, NormalWeights | SparseWeights):
            plain = like.get_submodule(name)
            is_sparse = isinstance(layer, SparseWeights)
            weight = layer.sparse() if is_sparse else layer.weight
            plain.load_state_dict({"weight": weight, "bias": layer.bias})
    return like


def divergence(model: nn.Module) -> Float[Tensor, ""]:
    """What the priors of all weights of a model cost."""
    layers = [
        m for m in model.modules() if isinstance(m, NormalWeights | SparseWeights)
    ]
    return torch.stack([layer.divergence() for layer in layers]).sum()

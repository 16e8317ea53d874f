"""A copy of a model with other weights: no zeros, no constants, real statistics.

Removal is structural, so it has to be exact whatever the weights are. Fresh models hide
mistakes: with a zero last layer, unit scales and zero biases, a dropped constant or a
swapped channel does not show.
"""

from typing import TypeVar

import torch
from torch import Tensor, nn

from diffprune._core.copying import copied

ModuleT = TypeVar("ModuleT", bound=nn.Module)


@torch.no_grad()
def scrambled(model: ModuleT, *, keep_zeros: bool = False) -> ModuleT:
    """Copy a model and give every parameter and running statistic another value.

    Values stay of the size they had, and keep their sign where all have the same.

    Args:
        model: Left as it is.
        keep_zeros: Whether numbers that are zero stay so.

    Examples:
        >>> norm = scrambled(nn.BatchNorm1d(3))
        >>> bool((norm.bias != 0).all() and (norm.running_var != 1).all())
        True
    """
    other, draw = copied(model), torch.Generator().manual_seed(0)
    for parameter in other.parameters():
        if parameter.is_floating_point():
            new = _scrambled(parameter, draw)
            parameter.copy_(new.where(parameter != 0, 0) if keep_zeros else new)
    for name, buffer in other.named_buffers():
        if name.endswith("running_mean"):
            buffer.add_(0.3 * _noise(buffer, draw))
        elif name.endswith("running_var"):
            buffer.abs_().add_(0.1).mul_(1 + 0.5 * _noise(buffer, draw))
    return other


def _scrambled(values: Tensor, draw: torch.Generator) -> Tensor:
    if values.numel() == 0:  # tokens of which a model may have none
        return values
    noise = _noise(values, draw)
    spread = float(values.std()) if values.numel() > 1 else 0.0
    if spread > 0:
        # A quarter more or less of each, and something where there was nothing.
        return noise.mul_(0.25 * values + 0.05 * spread).add_(values)
    if values.any():
        return values * (1 + 0.25 * noise)
    fan_in = values[0].numel() if values.ndim > 1 else 1
    return noise * (fan_in**-0.5 if values.ndim > 1 else 0.3)


def _noise(like: Tensor, draw: torch.Generator) -> Tensor:
    """Numbers from -1 to 1, none of them close to zero."""
    signed = torch.rand(like.shape, generator=draw, dtype=torch.float32) * 2 - 1
    away = torch.tensor(0.1, dtype=torch.float32).copysign(signed)  # from zero, too
    return signed.add_(away).div_(1.1).to(like)

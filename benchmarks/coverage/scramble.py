"""Random values for every parameter and statistic.

Fresh models hide mistakes: zero biases, unit norm scales and 1e-6 layer scales make a
dropped constant or a swapped channel invisible. Scrambling in float64 also makes every
value unique, so the survivors of a removal can be recognised by value.
"""

import torch
from torch import Tensor, nn


@torch.no_grad()
def scramble_(model: nn.Module, seed: int = 0) -> nn.Module:
    """Turn `model` into a float64 model in eval mode without special values.

    Examples:
        >>> norm = scramble_(nn.BatchNorm1d(3))
        >>> bool((norm.bias != 0).all() and (norm.running_mean != 0).all())
        True
    """
    model.double().eval()
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.copy_(_scrambled(parameter, generator))
    for name, buffer in model.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            buffer.copy_(_scrambled(buffer, generator).abs())
    return model


def _scrambled(values: Tensor, generator: torch.Generator) -> Tensor:
    noise = torch.rand(values.shape, generator=generator, dtype=values.dtype) - 0.5
    if values.numel() > 1 and values.std() > 0:
        return values + 0.2 * values.std() * noise
    # A constant: an unused shift (0), or a scale, whatever its initial size.
    return noise + (1.0 if values.any() else 0.0)

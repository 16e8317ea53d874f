"""The divergence from a log-uniform prior, as sparse variational dropout has it.

A weight or gate has a normal posterior of mean `m` and variance `v`; what its prior
costs depends on `alpha = v / m ** 2` alone. Three published constants make the
approximation; its error against quadrature is below 0.01.
"""

from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import softplus

from diffprune._core.types import Float

_K1: Final = 0.63576
_K2: Final = 1.87320
_K3: Final = 1.48695
_TINY: Final = 1e-8


def log_alpha(
    mean: Float[Tensor, "..."], log_var: Float[Tensor, "..."]
) -> Float[Tensor, "..."]:
    """The logarithm of variance over squared mean: how noisy a number is."""
    return log_var - torch.log(mean.square() + _TINY)


def divergence(log_alpha: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The divergence of each number from the prior; zero as the noise takes over.

    Examples:
        >>> divergence(torch.tensor([-2.0, 3.0]))
        tensor([1.5405, 0.0254])
    """
    fitted = _K1 * torch.sigmoid(_K2 + _K3 * log_alpha)
    return _K1 - fitted + 0.5 * softplus(-log_alpha)

"""The largest entries of a vector, found fast."""

import torch
from torch import Tensor

from diffprune._core.types import Float, Int

_BLOCK = 1024


def largest(
    x: Float[Tensor, "*batch units"], count: int
) -> Int[Tensor, "*batch count"]:
    """Indices of the `count` largest entries, ties in favour of the smaller index.

    Examples:
        >>> largest(torch.tensor([1.0, 3.0, 0.0, 3.0, 3.0]), 2)
        tensor([1, 3])
    """
    units = x.shape[-1]
    if units <= max(4, count) * _BLOCK:
        return _ranked(x, count)
    # Sorting a million numbers takes longer than a layer. The winners lie in the blocks
    # with the largest maxima (or in the tail that fills no block): sort only those.
    whole = units - units % _BLOCK
    maxima = x[..., :whole].unflatten(-1, (-1, _BLOCK)).amax(-1)
    blocks = _ranked(maxima, count).sort(-1).values.unsqueeze(-1)
    inside = (blocks * _BLOCK + torch.arange(_BLOCK, device=x.device)).flatten(-2)
    tail = torch.arange(whole, units, device=x.device).expand(*x.shape[:-1], -1)
    candidates = torch.cat([inside, tail], -1)
    winners = _ranked(x.take_along_dim(candidates, -1), count)
    return candidates.take_along_dim(winners, -1)


def _ranked(
    x: Float[Tensor, "*batch units"], count: int
) -> Int[Tensor, "*batch count"]:
    return x.sort(dim=-1, descending=True, stable=True).indices[..., :count]

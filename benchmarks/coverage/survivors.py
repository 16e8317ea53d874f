"""Finds what a smaller model still holds; asks no library what it has removed.

The masked original is the original with every parameter entry that the smaller model no
longer holds set to zero. Entries are recognised by value, hence the scrambled models.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn


@torch.no_grad()
def mask_(original: nn.Module, small: nn.Module) -> int:
    """Zero what `small` no longer holds; count the entries of the tensors touched.

    Examples:
        >>> whole, part = nn.Linear(1, 3, bias=False), nn.Linear(1, 2, bias=False)
        >>> _ = part.weight.data.copy_(whole.weight[[0, 2]])
        >>> mask_(whole, part), whole.weight.flatten().ne(0).tolist()
        (3, [True, False, True])
    """
    survivors = dict(small.named_parameters(remove_duplicate=False))
    touched: set[Tensor] = set()
    for name, parameter in original.named_parameters(remove_duplicate=False):
        kept = survivors.get(name, parameter.new_empty(0))
        if kept.shape != parameter.shape and parameter not in touched:
            keep_(parameter, kept_indices(parameter, kept))
            touched.add(parameter)  # tied parameters come under every name
    return sum(parameter.numel() for parameter in touched)


def kept_indices(original: Tensor, small: Tensor) -> list[Tensor]:
    """Along each dimension, where the slices of `small` lie in `original`.

    The first entry of `small` is looked up by value; the lines through it along each
    dimension then show which slices are left.

    Raises:
        ArithmeticError: If `small` is not made of slices of `original`.

    Examples:
        >>> original = torch.arange(12.0).view(3, 4)
        >>> kept_indices(original, original[[0, 2]][:, [1, 3]])
        [tensor([0, 2]), tensor([1, 3])]
    """
    if small.numel() == 0:
        return [torch.arange(0)] * original.ndim
    places = (original == small.flatten()[0]).nonzero().tolist()
    if small.ndim != original.ndim or not places:
        raise ArithmeticError("a parameter was replaced, not cut")
    indices, slices = [], original
    for dim in range(original.ndim):
        long, short = line(original, places[0], dim), line(small, [0] * small.ndim, dim)
        indices.append((short[:, None] == long).nonzero()[:, 1])
        slices = slices.index_select(dim, indices[-1])
    if not torch.equal(slices, small):
        raise ArithmeticError("a parameter was changed, not only cut")
    return indices


def line(tensor: Tensor, place: list[int], dim: int) -> Tensor:
    """The entries along one dimension through a place."""
    return tensor[(*place[:dim], slice(None), *place[dim + 1 :])]


def keep_(parameter: Tensor, indices: Iterable[Tensor]) -> None:
    """Zero every slice that is not listed for its dimension."""
    for dim, kept in enumerate(indices):
        removed = torch.ones(parameter.shape[dim], dtype=torch.bool)
        removed[kept] = False
        parameter.index_fill_(dim, removed.nonzero().flatten(), 0)

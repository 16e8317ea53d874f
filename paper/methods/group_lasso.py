"""Structured sparsity learning (Wen et al., 2016): group lasso on slices of weights.

The penalty is the sum of the norms of slices. In its *literal* form it is a term of the
loss, and weights below a threshold are set to zero after every step, as in the authors'
code. In its *proximal* form every step ends with the exact shrinkage of the norms. A
unit is gone when all its weights are zero; `dp.compact` removes it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import torch
from torch import Tensor, nn

from diffprune._core.types import Float

Slices: TypeAlias = Sequence[tuple[str, int]]
"""Parameters and dimensions whose slices of equal number form a group together."""

LENET5: Final[Mapping[str, Slices]] = {
    "conv1": (("conv1.weight", 0),),
    "conv2": (("conv2.weight", 0),),
    "flat": (("fc1.weight", 1),),
    "fc1": (("fc1.weight", 0), ("fc2.weight", 1)),
}
"""The four places of LeNet-5: filters, flat features, hidden units."""

_ZERO: Final = 1e-4


def norms(model: nn.Module, slices: Slices) -> Float[Tensor, " units"]:
    """The norm of the weights of each unit; its gradient is zero at zero."""
    squares = [_rows(model, name, dim).square().sum(1) for name, dim in slices]
    total = torch.stack(squares).sum(0)
    is_zero = total == 0
    return total.where(~is_zero, 1.0).sqrt().where(~is_zero, 0.0)


def penalty(
    model: nn.Module, groups: Iterable[Slices], strength: float
) -> Float[Tensor, ""]:
    """Strength times the sum of all norms."""
    return strength * torch.stack([norms(model, one).sum() for one in groups]).sum()


@torch.no_grad()
def zero_small_(model: nn.Module, groups: Iterable[Slices]) -> None:
    """Set weights below the threshold of the reference code to zero."""
    for name in dict.fromkeys(name for one in groups for name, _ in one):
        parameter = model.get_parameter(name)
        parameter.masked_fill_(parameter.abs() < _ZERO, 0.0)


@torch.no_grad()
def shrink_(model: nn.Module, groups: Iterable[Slices], amount: float) -> None:
    """Shorten the norms of all groups by an amount, down to zero.

    Args:
        model: Changed in place.
        groups: Its groups; those that overlap are shortened one after the other.
        amount: Learning rate times strength.
    """
    for slices in groups:
        length = norms(model, slices)
        factor = (1 - amount / length.clamp(min=1e-30)).clamp(min=0.0)
        for name, dim in slices:
            parameter = model.get_parameter(name)
            parameter.mul_(factor.view(-1, *(1,) * (parameter.ndim - dim - 1)))


def _rows(model: nn.Module, name: str, dim: int) -> Float[Tensor, "units rest"]:
    return model.get_parameter(name).movedim(dim, 0).flatten(1)

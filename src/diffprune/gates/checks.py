"""What a gate cannot work with, and what to write instead; knows only the arguments."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from diffprune._core.arguments import count, number
from diffprune._core.types import Bool, Float, Int
from diffprune.errors import ArgumentError
from diffprune.gates.functional import Activation


def check_units(
    size: int, u: Activation, index: Int[Tensor, "..."] | None, min_open: int
) -> None:
    """Check what there is to gate."""
    count("size", size)
    count("min_open", min_open, least=0)
    if not callable(u) and u not in {"sigmoid", "softmax"}:
        raise ArgumentError(f"u must be 'sigmoid', 'softmax' or a callable, got {u!r}.")
    if u == "softmax" and size == 1:
        raise ArgumentError(
            "softmax units compete, and a single unit has nothing to compete with.\n"
            "Use Gate(1, u='sigmoid')."
        )
    if index is not None:
        _check_index(index, size)


def _check_index(index: Int[Tensor, "..."], size: int) -> None:
    if index.dtype != torch.int64:
        raise ArgumentError(
            f"index must hold integers (torch.int64), got {index.dtype}.\n"
            "Pass index.long()."
        )
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < size:
        raise ArgumentError(
            f"index refers to units {int(index.min())} to {int(index.max())}, but a "
            f"gate of size {size} has units 0 to {size - 1}."
        )


def check_ranges(
    sigma: float,
    dropout: float | None,
    sharpness: float,
    init_std: float,
    beta_margin: float,
) -> None:
    """Check that each number lies where its formula is defined."""
    given = {"sigma": sigma, "sharpness": sharpness, "init_std": init_std}
    for name, value in given.items():
        number(name, value)
    number("beta_margin", beta_margin)
    if dropout is not None:
        number("dropout", dropout, least=-math.inf)
    if not sigma > 0:
        raise ArgumentError(f"sigma is a standard deviation and positive, got {sigma}.")
    if dropout is not None and not 0 < dropout < 1:
        raise ArgumentError(
            f"dropout is a rate between 0 and 1, got {dropout}; None turns it off."
        )
    if not 0 < beta_margin < 1:
        raise ArgumentError(
            f"beta_margin must lie between 0 and 1, got {beta_margin}: at 1 the "
            "weakest unit would start closed."
        )


def check_start(start: str) -> None:
    """Check that it says what the values are at first."""
    if start not in {"one", "paper"}:
        raise ArgumentError(f"start must be 'one' or 'paper', got {start!r}.")


def check_base(
    base: Callable[[Tensor], object] | None, u: Activation, dropout: float | None
) -> None:
    """Check that a stochastic gate has one source of noise and a closed form."""
    if base is None:
        return
    if dropout is not None:
        raise ArgumentError(
            "a gate takes its noise from `base` or from `dropout`, not from both."
        )
    if callable(u):
        raise ArgumentError(
            "a gate with a `base` needs u='sigmoid' or u='softmax': the open "
            "probability of another u has no closed form."
        )


def check_input(
    x: Float[Tensor, "..."], values: Float[Tensor, "..."], dim: int
) -> None:
    """Check that the values cover the dimensions of `x` from `dim` onwards."""
    first = dim + x.ndim if dim < 0 else dim
    if x.shape[first : first + values.ndim] != values.shape:
        raise ArgumentError(
            f"a gate of shape {tuple(values.shape)} cannot cover an input of shape "
            f"{tuple(x.shape)} from dimension {dim} on.\n"
            "Pass the dimension of the units as Gate(..., dim=...)."
        )


def check_mask(
    mask: Bool[Tensor, " units"], size: int, index: Int[Tensor, "..."] | None
) -> None:
    """Check that `mask` selects units, and that no element loses its unit."""
    if mask.dtype != torch.bool or mask.shape != (size,):
        raise ArgumentError(
            f"keep_ takes one bool per unit, shape ({size},), got {mask.dtype} of "
            f"shape {tuple(mask.shape)}."
        )
    if not mask.any():
        raise ArgumentError("keep_ needs at least one unit to keep, got none.")
    if index is not None and index.ndim > 1 and not mask[index].all():
        raise ArgumentError(
            f"an index of shape {tuple(index.shape)} would have holes: some elements "
            "belong to units outside the mask.\n"
            "Keep these units, or assign an index without the elements first."
        )

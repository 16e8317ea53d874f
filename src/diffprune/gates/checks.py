"""What a gate cannot work with, and what to write instead."""

import math
from collections.abc import Callable
from typing import Annotated, Any, Final

import torch
from torch import Tensor
from torch.distributions import Distribution

from diffprune._core.arguments import check, number, shown
from diffprune._core.types import Bool, Float, Int, Within
from diffprune.errors import ArgumentError
from diffprune.gates.functional import Activation
from diffprune.gates.protocol import GateLike

_WIDEST: Final = 10.0
"""Logits that start further apart are all saturated."""


def check_units(size: int, u: Activation, index: Int[Tensor, "..."] | None) -> None:
    """Check that there is something to gate."""
    if u == "softmax" and size == 1:
        raise ArgumentError(
            "softmax units compete, and a single unit has nothing to compete with.\n"
            "Use Gate(1, u='sigmoid')."
        )
    if index is not None:
        _check_index(index, size)


def _check_index(index: Int[Tensor, "..."], size: int) -> None:
    if index.dtype != torch.int64 or index.is_meta:
        raise ArgumentError(
            f"index must hold integers (torch.int64), got {index.dtype} on "
            f"{index.device}.\n"
            "Pass index.long()."
        )
    if index.numel() and not 0 <= int(index.min()) <= int(index.max()) < size:
        raise ArgumentError(
            f"index refers to units {int(index.min())} to {int(index.max())}, but a "
            f"gate of size {size} has units 0 to {size - 1}."
        )


def check_ranges(
    sigma: float, dropout: float | None, init_std: float, beta_margin: float
) -> None:
    """Check that each number lies where its formula is defined."""
    number("init_std", init_std, most=_WIDEST)
    for name, spread in {"sigma": sigma, "init_std": init_std}.items():
        if not spread > 0:
            raise ArgumentError(
                f"{name} is a standard deviation and positive, got {spread}."
            )
    if dropout is not None and not 0 < dropout < 1:
        raise ArgumentError(
            f"dropout is a rate between 0 and 1, got {dropout}; None turns it off."
        )
    if not 0 < beta_margin < 1:
        raise ArgumentError(
            f"beta_margin must lie between 0 and 1, got {beta_margin}: at 1 the "
            "weakest unit would start closed."
        )


def check_sample(sample: Tensor, **numbers: float | Tensor) -> None:
    """Check that samples are numbers along a dimension, and other numbers fit them."""
    if not sample.is_floating_point() or not sample.ndim or sample.is_meta:
        raise ArgumentError(
            "sample must hold floating point numbers, the units along its last "
            f"dimension, got {shown(sample)}."
        )
    check_spread(sample.shape, **numbers)


def check_others(others: Tensor, units: torch.Size) -> None:
    """Check that there is a number for each unit to condition on."""
    is_number = others.is_floating_point() and not others.is_meta
    if not is_number or others.shape[-len(units) :] != units:
        raise ArgumentError(
            f"others must be a sample with {tuple(units)} units, got {shown(others)}."
        )


def check_spread(shape: torch.Size, **numbers: float | Tensor) -> None:
    """Check that numbers are one for all units, or one for each."""
    for name, value in numbers.items():
        if isinstance(value, Tensor) and not _is_spread_over(value, shape):
            raise ArgumentError(
                f"{name} must be one number, or one for each of {tuple(shape)} units, "
                f"got {shown(value)}."
            )


def _is_spread_over(value: Tensor, shape: torch.Size) -> bool:
    try:
        fits = torch.broadcast_shapes(value.shape, shape) == shape
    except RuntimeError:
        return False
    return fits and not (value.is_meta or value.is_complex())


def check_parameter(name: str, value: float | Tensor, most: float = math.inf) -> None:
    """Check that a number, or each of several, lies in a range from zero on."""
    if not isinstance(value, Tensor):
        check(name, Annotated[float, Within(0, most, may_be_infinite=True)], value)
    elif value.is_complex() or value.is_meta or not _is_between(value, most):
        words = "not negative" if most == math.inf else f"from 0 to {most:g}"
        raise ArgumentError(f"{name} must hold numbers, {words}, got {shown(value)}.")


def _is_between(value: Tensor, most: float) -> bool:
    return bool(((value >= 0) & (value <= most)).all())


def check_base(
    base: Callable[[Tensor], object] | None,
    u: Activation,
    dropout: float | None,
    size: int,
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
    made = base(torch.zeros(size))
    if not isinstance(made, Distribution):
        raise ArgumentError(
            "base must make a `torch.distributions.Distribution` of the logits, got "
            f"{shown(made)}."
        )


def check_activation(activation: Float[Tensor, " units"]) -> None:
    """Check that a `u` makes a number between 0 and 1 for each unit."""
    if not activation.is_meta and not ((activation > 0) & (activation < 1)).all():
        raise ArgumentError(
            "u must return numbers between 0 and 1, got "
            f"{float(activation.min()):g} to {float(activation.max()):g}."
        )


def cost_of(name: str, gate: GateLike) -> Float[Tensor, ""]:
    """What the units of a gate cost, if that is one number.

    Raises:
        ArgumentError: If it is something else.
    """
    cost: Any = gate.penalty()  # users are not checked
    if isinstance(cost, Tensor) and cost.ndim == 0 and not cost.is_complex():
        return cost
    raise ArgumentError(
        f"`penalty` of the gate of `{name}`, a {type(gate).__name__}, must return one "
        f"number, as a tensor without dimensions, got {shown(cost)}.\nType `.sum()` "
        "behind a vector, and `self.margin().new_zeros(())` where nothing is pushed."
    )


def check_input(
    x: Float[Tensor, "..."], values: Float[Tensor, "..."], dim: int
) -> None:
    """Check that the values cover the dimensions of `x` from `dim` onwards."""
    check("x", Tensor, x)
    first = dim + x.ndim if dim < 0 else dim
    if x.shape[first : first + values.ndim] != values.shape:
        raise ArgumentError(
            f"a gate of shape {tuple(values.shape)} cannot cover an input x of shape "
            f"{tuple(x.shape)} from dimension {dim} on.\n"
            "Pass the dimension of the units as Gate(..., dim=...)."
        )


def check_mask(
    mask: Bool[Tensor, " units"], size: int, index: Int[Tensor, "..."] | None
) -> None:
    """Check that `mask` selects units, and that no element loses its unit."""
    is_mask = isinstance(mask, Tensor) and mask.dtype == torch.bool  # pyright: ignore[reportUnnecessaryIsInstance] - users are not checked
    if not is_mask or mask.shape != (size,) or mask.is_meta:
        raise ArgumentError(
            f"the mask of keep_ is one bool per unit, of shape ({size},), got "
            f"{shown(mask)}."
        )
    if not mask.any():
        raise ArgumentError("the mask of keep_ keeps no unit, and at least one stays.")
    if index is not None and index.ndim > 1 and not mask[index].all():
        raise ArgumentError(
            f"an index of shape {tuple(index.shape)} would have holes: some elements "
            "belong to units outside the mask.\n"
            "Keep these units, or assign an index without the elements first."
        )

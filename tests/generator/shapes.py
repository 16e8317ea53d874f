"""What all block constructors share: shapes without their batch, random widths."""

from collections.abc import Callable
from random import Random

from torch import nn

Shape = tuple[int, ...]
"""(channels, height, width), (tokens, channels) or (channels,)."""

Block = Callable[[Random, Shape], nn.Module | None]
"""A random module that accepts the shape, or nothing when none fits."""


def width(rng: Random, multiple_of: int = 1) -> int:
    """A number of units between 3 and 24."""
    return multiple_of * rng.randint(-(-3 // multiple_of), 24 // multiple_of)


def divisor(rng: Random, number: int) -> int | None:
    """A proper divisor other than 1, if there is one."""
    divisors = [d for d in range(2, number) if number % d == 0]
    return rng.choice(divisors) if divisors else None


def activation(rng: Random) -> nn.Module:
    return rng.choice(
        [nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.ELU, nn.Softplus, nn.PReLU]
    )()

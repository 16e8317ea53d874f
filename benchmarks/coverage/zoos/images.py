"""Example images."""

import functools
from collections.abc import Callable

import torch

from benchmarks.coverage.case import Inputs


def image(size: int, *, channels: int = 3) -> Callable[[], Inputs]:
    """Two random square images in float64.

    Examples:
        >>> image(32)()[0].shape
        torch.Size([2, 3, 32, 32])
    """
    return functools.partial(_images, size, channels)


def _images(size: int, channels: int) -> Inputs:
    generator = torch.Generator().manual_seed(1)
    shape = (2, channels, size, size)
    return (torch.randn(shape, generator=generator, dtype=torch.float64),)

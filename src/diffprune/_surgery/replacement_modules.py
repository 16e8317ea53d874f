"""What stands where a module was that had nothing left to say. Knows no models.

A forward pass cannot be edited, so the modules of a branch that adds only zeros are
replaced by modules of torch that have no parameters and cost next to nothing. All of
them return zeros: one that handed its input on would let the rest of the branch change
that input in place.
"""

import math
from dataclasses import dataclass
from typing import Final

from torch import nn

_POOLS: Final = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)


@dataclass(frozen=True)
class Stub:
    """A module without parameters that returns zeros, of the shape of its input or so.

    Attributes:
        strides: Keep one position in so many, for each of the last dimensions.
        wider: Channels to add in front of those dimensions; to drop if negative.

    Examples:
        >>> import torch
        >>> Stub().build()
        Threshold(threshold=inf, value=0.0)
        >>> Stub(strides=(2, 2), wider=3).build()(torch.rand(1, 4, 5, 6)).shape
        torch.Size([1, 7, 3, 3])
    """

    strides: tuple[int, ...] = ()
    wider: int = 0

    def build(self) -> nn.Module:
        """Make the module."""
        layers: list[nn.Module] = []
        if any(stride > 1 for stride in self.strides):
            layers.append(_POOLS[len(self.strides) - 1](1, self.strides))  # pyright: ignore[reportArgumentType] - as many as it has dimensions
        if self.wider:
            unchanged = (0, 0) * len(self.strides)
            layers.append(nn.ConstantPad3d((*unchanged, 0, self.wider), 0.0))  # pyright: ignore[reportArgumentType] - fewer than six are fine
        # No number is above infinity; whatever is not becomes zero.
        layers.append(nn.Threshold(math.inf, 0.0))
        return nn.Sequential(*layers) if len(layers) > 1 else layers[0]

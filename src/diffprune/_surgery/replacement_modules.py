"""Modules without parameters that take the place of modules that pruning removed.

`Stub` makes a module that returns zeros, for the layers of a branch that adds only
zeros: a forward pass cannot be edited, so something must stand there. All layers of a
branch return zeros, because one that handed its input on would let the rest of the
branch change that input in place. `Select` takes the place of a gate that the user
wrote into the forward pass.
"""

import math
from dataclasses import dataclass
from typing import Final, final

from torch import Tensor, nn

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


@final
class Select(nn.Module):
    """What is left of a placed gate that could not be absorbed: a choice, a scale.

    Args:
        dim: The dimension it works on.
        index: Which elements stay; all if omitted.
        scale: What they are multiplied by, along this dimension and following ones;
            nothing if omitted.
    """

    index: Tensor | None
    scale: Tensor | None

    def __init__(self, dim: int, index: Tensor | None, scale: Tensor | None) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("index", index)
        self.register_buffer("scale", scale)

    @property
    def does_something(self) -> bool:
        """Whether the output can differ from the input."""
        return self.index is not None or self.scale is not None

    def forward(self, x: Tensor) -> Tensor:
        """Choose, then scale."""
        if self.index is not None:
            x = x.index_select(self.dim, self.index)
        if self.scale is not None:
            after = x.ndim - self.dim % x.ndim - self.scale.ndim
            x = x * self.scale.to(x).view(*self.scale.shape, *(1,) * after)
        return x

    def extra_repr(self) -> str:
        """The number of elements, for `print`."""
        kept = self.index if self.index is not None else self.scale
        return f"dim={self.dim}, elements={0 if kept is None else len(kept)}"

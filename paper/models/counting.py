"""What a partly closed LeNet-5 costs; knows masks and arithmetic, not gates.

The four numbers of an architecture such as 20-50-800-500 count the units that remain
after `conv1`, `conv2`, the flattening and `fc1`.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from diffprune._core.types import Bool

_KERNEL = 5 * 5
_CONV1_PIXELS = 24 * 24
_CONV2_PIXELS = 8 * 8
_NUM_CLASSES = 10


class Widths(NamedTuple):
    """Units per layer, with the costs that follow from them.

    Examples:
        >>> dense = Widths(20, 50, 800, 500)
        >>> print(dense, dense.parameters, dense.macs)
        20-50-800-500 431080 2293000
    """

    conv1: int
    conv2: int
    flat: int
    fc1: int

    @property
    def weights(self) -> int:
        """Number of weights without biases, as the literature's tables count."""
        return _KERNEL * self.conv1 * (1 + self.conv2) + self._dense_weights

    @property
    def parameters(self) -> int:
        """Number of weights and biases."""
        return self.weights + self.conv1 + self.conv2 + self.fc1 + _NUM_CLASSES

    @property
    def macs(self) -> int:
        """Multiply-accumulate operations for one image."""
        conv1 = _KERNEL * _CONV1_PIXELS * self.conv1
        conv2 = _KERNEL * _CONV2_PIXELS * self.conv1 * self.conv2
        return conv1 + conv2 + self._dense_weights

    @property
    def _dense_weights(self) -> int:
        return (self.flat + _NUM_CLASSES) * self.fc1

    def __str__(self) -> str:
        return "-".join(map(str, self))


@dataclass(frozen=True)
class OpenUnits:
    """Which units of a LeNet-5 are open, one mask per gate."""

    conv1: Bool[Tensor, " 20"]
    conv2: Bool[Tensor, " 50"]
    flat: Bool[Tensor, " 800"]
    fc1: Bool[Tensor, " 500"]

    def raw(self) -> Widths:
        """Count open gates, whether or not anything still flows through them."""
        return _count(self.conv1, self.conv2, self.flat, self.fc1)

    def effective(self) -> Widths:
        """Count units that are connected: what physical removal would leave.

        A flat feature of a closed channel is always zero, and a channel none of whose
        features is open is never read; without conv2, conv1 is never read either.
        """
        features = self.flat.view(len(self.conv2), -1) & self.conv2.unsqueeze(1)
        conv2 = features.any(dim=1)
        return _count(self.conv1 & conv2.any(), conv2, features, self.fc1)


def _count(*masks: Bool[Tensor, " units"]) -> Widths:
    return Widths(*(int(mask.sum()) for mask in masks))

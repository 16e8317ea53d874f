"""LeNet-5 with a place for a gate after every layer, and what a narrow one costs.

A model takes the *maker* of its gates: `LeNet5(partial(Gate, u="softmax"))` is gated,
`LeNet5()` is the plain network. Both have the same layers under the same names.
"""

from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar, final

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu
from torch.nn.utils import fuse_conv_bn_eval, fuse_linear_bn_eval

from diffprune._core.types import Float

MakeGate = Callable[[int], nn.Module]
"""From the number of units on dimension 1 to the module that gates them."""

ModuleT = TypeVar("ModuleT", bound=nn.Module)

PLACES: Final = ("gate_conv1", "gate_conv2", "gate_flat", "gate_fc1")
"""Names of the four gates, in the order of the network."""

_NORMED: Final = ("conv1", "conv2", "fc1")
_KERNEL: Final = 5 * 5
_CONV1_PIXELS: Final = 24 * 24
_CONV2_PIXELS: Final = 8 * 8
_NUM_CLASSES: Final = 10


@final
class LeNet5(nn.Module):
    """LeNet-5 as the pruning literature counts it: 20-50-800-500.

    The gates multiply the activations after `conv1`, `conv2`, the flattening and `fc1`.
    Those of the convolutions follow the pooling, and so does the ReLU: there is four
    times less to do there. Neither ever decreases, so both commute with a maximum.

    Examples:
        >>> LeNet5()(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(self, gate: MakeGate = nn.Identity) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, kernel_size=5)
        self.conv2 = nn.Conv2d(20, 50, kernel_size=5)
        self.fc1 = nn.Linear(800, 500)
        self.fc2 = nn.Linear(500, 10)
        # After the layers, so that one seed gives equal weights with and without gates.
        self.gate_conv1 = gate(20)
        self.gate_conv2 = gate(50)
        self.gate_flat = gate(800)
        self.gate_fc1 = gate(500)

    def forward(
        self, images: Float[Tensor, "batch 1 28 28"]
    ) -> Float[Tensor, "batch 10"]:
        """Class scores before the softmax."""
        x = self.gate_conv1(relu(max_pool2d(self.conv1(images), 2)))
        x = self.gate_conv2(relu(max_pool2d(self.conv2(x), 2)))
        x = self.gate_flat(x.flatten(start_dim=1))
        x = self.gate_fc1(relu(self.fc1(x)))
        return self.fc2(x)


def channels_last(model: ModuleT) -> ModuleT:
    """Store convolutions with the channels last, where pooling is faster."""
    return model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue] - torch's annotations lack it


def normed_(model: LeNet5) -> LeNet5:
    """Put a batch norm behind both convolutions and the first dense layer, in place."""
    for name in _NORMED:
        layer = getattr(model, name)
        is_dense = isinstance(layer, nn.Linear)
        norm = nn.BatchNorm1d if is_dense else nn.BatchNorm2d
        setattr(model, name, nn.Sequential(layer, norm(len(layer.weight))))
    return model


def folded_(model: LeNet5) -> LeNet5:
    """Make the batch norms a part of the layers before them, in place.

    In eval mode it computes the same, and is a plain LeNet-5 again.

    Examples:
        >>> model, images = normed_(LeNet5()).eval(), torch.rand(2, 1, 28, 28)
        >>> before = model(images)
        >>> torch.allclose(folded_(model)(images), before, atol=1e-6)
        True
        >>> str(model) == str(LeNet5())
        True
    """
    model.eval()
    for name in _NORMED:
        layer, norm = getattr(model, name)
        is_dense = isinstance(layer, nn.Linear)
        fuse = fuse_linear_bn_eval if is_dense else fuse_conv_bn_eval
        setattr(model, name, fuse(layer, norm))
    return model


class Widths(NamedTuple):
    """Units behind the four places of gates, with the costs that follow from them.

    Examples:
        >>> print(DENSE, DENSE.parameters, DENSE.macs)
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


DENSE: Final = Widths(20, 50, 800, 500)
"""The network before anything is removed."""

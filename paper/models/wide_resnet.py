"""Wide residual networks for 32-pixel images, with the paper's gates; no training.

As in `paper.models.lenet5`, a network takes the maker of its gates. They multiply the
hidden activations of every block, and the sum of each block with its shortcut.

A sum is read by the norm of the next block, and what a norm makes of a closed unit is a
learned constant: nothing that can be removed. So the gate of a sum follows that norm;
on the shortcut, which has none, it acts at once.
"""

from collections.abc import Iterator
from typing import final

from torch import Tensor, nn
from torch.nn.functional import relu

from diffprune._core.types import Float
from diffprune.errors import ArgumentError
from paper.models.lenet5 import MakeGate


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    conv = nn.Conv2d(
        inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False
    )
    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
    return conv


@final
class WideBlock(nn.Module):
    """Two 3x3 convolutions, each after a norm and a rectifier, and a shortcut.

    Where the width changes, the shortcut is a 1x1 convolution that shares the first
    norm and rectifier.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, gate: MakeGate) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), _conv(inputs, outputs, 3, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(outputs), _conv(outputs, outputs, 3)
        changes = inputs != outputs
        self.shortcut = _conv(inputs, outputs, 1, stride) if changes else None
        self.gate_hidden, self.gate_sum = gate(outputs), gate(outputs)

    def forward(self, x: Tensor, gate: nn.Module) -> Tensor:
        """Add what the block computes to its shortcut; `gate` is on what it reads."""
        first = gate(relu(self.bn1(x)))
        shortcut = gate(x) if self.shortcut is None else self.shortcut(first)
        hidden = self.gate_hidden(relu(self.bn2(self.conv1(first))))
        return self.conv2(hidden) + shortcut


@final
class WideResNet(nn.Module):
    """WRN-depth-widen, without dropout.

    Args:
        depth: Convolutions on the longest path: six per block and group, and four.
        widen: Factor on the 16, 32 and 64 channels of the three groups.
        gate: From a number of channels to the module that gates them.
        num_classes: Number of outputs.
        gates_first: Gate the sums before they are normalised, to the letter of the
            paper. Units that are closed there then stay in the network.

    Examples:
        >>> import torch
        >>> WideResNet(10, 1)(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(
        self,
        depth: int = 28,
        widen: int = 10,
        gate: MakeGate = nn.Identity,
        *,
        num_classes: int = 10,
        gates_first: bool = False,
    ) -> None:
        super().__init__()
        if depth < 10 or depth % 6 != 4:
            raise ArgumentError(
                f"a wide ResNet has a depth of 6 n + 4, such as 16 or 28, got {depth}."
            )
        self.gates_first = gates_first
        blocks = (depth - 4) // 6
        widths = 16, 16 * widen, 32 * widen, 64 * widen
        self.conv1 = _conv(3, widths[0], 3)
        self.group1 = _group(widths[0], widths[1], blocks, 1, gate)
        self.group2 = _group(widths[1], widths[2], blocks, 2, gate)
        self.group3 = _group(widths[2], widths[3], blocks, 2, gate)
        self.bn = nn.BatchNorm2d(widths[3])
        self.fc = nn.Linear(widths[3], num_classes)

    def forward(
        self, images: Float[Tensor, "batch 3 side side"]
    ) -> Float[Tensor, "batch classes"]:
        """Class scores before the softmax."""
        x: Tensor = self.conv1(images)
        gate: nn.Module = nn.Identity()
        for block in self._blocks():
            x, gate = block(x, gate), block.gate_sum
            if self.gates_first:
                x, gate = gate(x), nn.Identity()
        return self.fc(gate(relu(self.bn(x))).mean(dim=(2, 3)))

    def _blocks(self) -> Iterator[WideBlock]:
        for block in (*self.group1, *self.group2, *self.group3):
            assert isinstance(block, WideBlock)  # noqa: S101 - made below
            yield block


def _group(
    inputs: int, outputs: int, blocks: int, stride: int, gate: MakeGate
) -> nn.Sequential:
    return nn.Sequential(
        WideBlock(inputs, outputs, stride, gate),
        *(WideBlock(outputs, outputs, 1, gate) for _ in range(blocks - 1)),
    )

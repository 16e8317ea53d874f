"""ResNets for 224-pixel images, in plain PyTorch, for benchmarks without torchvision.

Layers have the names torchvision gives them, so its checkpoints can be loaded.
"""

from typing import final

from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from diffprune._core.types import Float


def _conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(
        inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False
    )


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(_conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


@final
class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _conv(inputs, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = _conv(width, width, 3), nn.BatchNorm2d(width)
        self.downsample = _shortcut(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Add what the block computes to its input, and rectify."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = relu(self.bn1(self.conv1(x)))
        return relu(self.bn2(self.conv2(x)) + shortcut)


@final
class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 ones, and a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1, self.bn1 = _conv(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = _conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = _conv(width, outputs, 1), nn.BatchNorm2d(outputs)
        self.downsample = _shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Add what the block computes to its input, and rectify."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = relu(self.bn1(self.conv1(x)))
        x = relu(self.bn2(self.conv2(x)))
        return relu(self.bn3(self.conv3(x)) + shortcut)


def _stage(
    block: type[BasicBlock | Bottleneck], inputs: int, width: int, depth: int
) -> nn.Sequential:
    """Blocks of one width; only the first stage keeps the resolution."""
    outputs, stride = width * block.expansion, 1 if inputs == width else 2
    first = block(inputs, width, stride)
    return nn.Sequential(first, *(block(outputs, width, 1) for _ in range(depth - 1)))


@final
class ResNet(nn.Module):
    """A stem, four stages of residual blocks, and a linear classifier.

    Args:
        block: What the stages are made of.
        depths: Blocks per stage.
        num_classes: Outputs of the classifier.
        width: Channels of the stem; every stage is twice as wide as the one before.
    """

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        depths: tuple[int, int, int, int],
        *,
        num_classes: int = 1000,
        width: int = 64,
    ) -> None:
        super().__init__()
        wider = width * block.expansion
        self.conv1, self.bn1 = _conv(3, width, 7, stride=2), nn.BatchNorm2d(width)
        self.layer1 = _stage(block, width, width, depths[0])
        self.layer2 = _stage(block, wider, 2 * width, depths[1])
        self.layer3 = _stage(block, 2 * wider, 4 * width, depths[2])
        self.layer4 = _stage(block, 4 * wider, 8 * width, depths[3])
        self.fc = nn.Linear(8 * wider, num_classes)

    def forward(
        self, images: Float[Tensor, "batch 3 height width"]
    ) -> Float[Tensor, "batch classes"]:
        """Class scores before the softmax."""
        x = max_pool2d(relu(self.bn1(self.conv1(images))), 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def resnet18(*, num_classes: int = 1000, width: int = 64) -> ResNet:
    """ResNet-18.

    Examples:
        >>> sum(p.numel() for p in resnet18().parameters())
        11689512
    """
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes=num_classes, width=width)


def resnet50(*, num_classes: int = 1000, width: int = 64) -> ResNet:
    """ResNet-50, with the stride on the 3x3 convolutions.

    Examples:
        >>> sum(p.numel() for p in resnet50().parameters())
        25557032
    """
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes=num_classes, width=width)

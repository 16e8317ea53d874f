"""Three small networks that are cut; LeNet-5 is the paper's. Plain torch, no gates."""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import relu, scaled_dot_product_attention

_NUM_CLASSES = 10


def _conv(inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(
        inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False
    )


@final
class Block(nn.Module):
    """Two convolutions with batch norms beside a short cut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = (
            _conv(inputs, outputs, stride=stride),
            nn.BatchNorm2d(outputs),
        )
        self.conv2, self.norm2 = _conv(outputs, outputs), nn.BatchNorm2d(outputs)
        self.short = nn.Identity()
        if stride > 1:
            self.short = nn.Sequential(
                _conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Add what the convolutions make of the input to it."""
        y = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
        return relu(y + self.short(x))


@final
class ResNet(nn.Module):
    """A residual network of three stages, one block each; its stem halves the image.

    Examples:
        >>> ResNet()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = _conv(3, 16, stride=2), nn.BatchNorm2d(16)
        self.stages = nn.Sequential(
            Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2)
        )
        self.head = nn.Linear(64, _NUM_CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores before the softmax."""
        x = self.stages(relu(self.norm(self.stem(images))))
        return self.head(x.mean((2, 3)))


@final
class Attention(nn.Module):
    """Self-attention with one layer for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads, self.scale = heads, (width // heads) ** -0.5
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Mix tokens."""
        split = self.qkv(x).unflatten(2, (3, self.num_heads, -1))
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = scaled_dot_product_attention(q, k, v, scale=self.scale)
        return self.proj(mixed.transpose(1, 2).flatten(2))


@final
class Layer(nn.Module):
    """Attention, then a perceptron, each beside a short cut and behind a norm."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.act = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        """Mix tokens, then the features of each."""
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(self.act(self.fc1(self.norm2(x))))


@final
class Positions(nn.Module):
    """What is added to each token to say where it is."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(1, tokens, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw them anew."""
        nn.init.normal_(self.table, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Add them."""
        return x + self.table


@final
class ViT(nn.Module):
    """A vision transformer of two layers on 16 patches of 8 x 8 pixels.

    Examples:
        >>> ViT()(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """

    def __init__(self, width: int = 64, heads: int = 4, hidden: int = 128) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.positions = Positions(16, width)
        self.layers = nn.Sequential(*(Layer(width, heads, hidden) for _ in range(2)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, _NUM_CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores before the softmax."""
        x = self.positions(self.patches(images).flatten(2).transpose(1, 2))
        return self.head(self.norm(self.layers(x)).mean(1))


@final
class Reader(nn.Module):
    """Two LSTMs, one on the other, that read an image row by row.

    Examples:
        >>> Reader()(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first = nn.LSTM(28, width, batch_first=True)
        self.second = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, _NUM_CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Class scores before the softmax."""
        x, _ = self.first(images.squeeze(1))
        x, _ = self.second(x)
        return self.head(x[:, -1])

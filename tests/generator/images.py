"""Random blocks from (b c h w) to (b c h w)."""

from random import Random

import torch
from torch import nn
from torch.nn import functional as F

from .shapes import Block, Shape, activation, divisor, width


class Affine(nn.Module):
    """Per-channel scale and shift, as raw parameters of different ranks."""

    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(channels))
        self.shift = nn.Parameter(torch.empty(1, channels, 1, 1))

    def forward(self, x):
        return x * self.scale.view(-1, 1, 1) + self.shift


class LayerNorm2d(nn.LayerNorm):
    """Normalises over channels."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Excite(nn.Module):
    """x * sigmoid(expand(relu(reduce(pool(x)))))."""

    def __init__(self, channels, reduced):
        super().__init__()
        self.reduce = nn.Linear(channels, reduced)
        self.expand = nn.Linear(reduced, channels)

    def forward(self, x):
        b, c = x.shape[:2]
        scale = self.expand(F.relu(self.reduce(x.mean((2, 3))))).sigmoid()
        return x * scale.view(b, c, 1, 1)


class SplitTransform(nn.Module):
    """Splits channels in two, convolves the second part, concatenates."""

    def __init__(self, first, second, out):
        super().__init__()
        self.sizes = [first, second]
        self.conv = nn.Conv2d(second, out, 3, padding=1)

    def forward(self, x):
        first, second = x.split(self.sizes, dim=1)
        return torch.cat((F.relu(self.conv(second)), first), dim=1)


class ChunkProduct(nn.Module):
    """Convolves to twice the width; one half gates the other."""

    def __init__(self, channels, out):
        super().__init__()
        self.conv = nn.Conv2d(channels, 2 * out, 1)

    def forward(self, x):
        value, gate = self.conv(x).chunk(2, dim=1)
        return value * torch.tanh(gate)


class Shuffle(nn.Module):
    """(g c) -> (c g) on channels, by hand."""

    def __init__(self, groups):
        super().__init__()
        self.groups = groups

    def forward(self, x):
        b, c, h, w = x.shape
        x = x.view(b, self.groups, c // self.groups, h, w)
        return x.transpose(1, 2).reshape(b, c, h, w)

    def extra_repr(self):
        return f"{self.groups}"


class PixelMix(nn.Module):
    """A linear layer over the pixels of each channel."""

    def __init__(self, height, width):
        super().__init__()
        self.mix = nn.Linear(height * width, height * width)

    def forward(self, x):
        return self.mix(x.flatten(2)).view_as(x)


class Twice(nn.Module):
    """One shared layer applied two times, with or without the input added."""

    def __init__(self, layer, *, residual):
        super().__init__()
        self.layer, self.residual = layer, residual

    def forward(self, x):
        y = self.layer(torch.tanh(self.layer(x)))
        return (x + y) / 2 if self.residual else y


class PathSelect(nn.Module):
    """Two convolutions, stacked and mixed by a softmax over the two paths."""

    def __init__(self, channels, out):
        super().__init__()
        self.a = nn.Conv2d(channels, out, 1)
        self.b = nn.Conv2d(channels, out, 3, padding=1, bias=False)
        self.score = nn.Parameter(torch.empty(2, out, 1, 1))

    def forward(self, x):
        paths = torch.stack((self.a(x), self.b(x)), dim=1)
        return (paths * self.score.softmax(0)).sum(1)


class EinsumConv(nn.Module):
    """A 1x1 convolution as an einsum."""

    def __init__(self, channels, out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out, channels))

    def forward(self, x):
        return torch.einsum("bchw,oc->bohw", x, self.weight)


class Slice(nn.Module):
    """Keeps the channels between two bounds."""

    def __init__(self, start, stop):
        super().__init__()
        self.start, self.stop = start, stop

    def forward(self, x):
        return x[:, self.start : self.stop]

    def extra_repr(self):
        return f"{self.start}:{self.stop}"


def convolution(rng: Random, shape: Shape) -> nn.Module:
    kernel = rng.choice([1, 3])
    return nn.Conv2d(
        shape[0],
        width(rng),
        kernel_size=kernel,
        stride=rng.choice([1, 1, 2]),
        padding=rng.choice([kernel // 2, kernel // 2, 1]),
        bias=rng.random() < 0.6,
        padding_mode=rng.choice(["zeros", "zeros", "circular", "replicate"]),
    )


def conv_norm_act(rng: Random, shape: Shape) -> nn.Module:
    out = width(rng)
    conv = nn.Conv2d(shape[0], out, 3, padding=1, bias=rng.random() < 0.5)
    return nn.Sequential(conv, norm(rng, (out, *shape[1:])), activation(rng))


def grouped(rng: Random, shape: Shape) -> nn.Module | None:
    groups = divisor(rng, shape[0])
    if groups is None:
        return None
    out = groups * rng.randint(1, max(1, 24 // groups))
    if rng.random() < 0.3:
        return nn.ConvTranspose2d(shape[0], out, 2, groups=groups)
    return nn.Conv2d(shape[0], out, 3, padding=1, groups=groups)


def depthwise(rng: Random, shape: Shape) -> nn.Module:
    c, multiplier = shape[0], rng.choice([1, 1, 2])
    return nn.Conv2d(c, c * multiplier, 3, padding=1, groups=c, bias=rng.random() < 0.5)


def transposed(rng: Random, shape: Shape) -> nn.Module:
    return nn.ConvTranspose2d(shape[0], width(rng), 2, stride=rng.choice([1, 2]))


def norm(rng: Random, shape: Shape) -> nn.Module:
    c = shape[0]
    layers = [nn.BatchNorm2d(c)] * 3 + [nn.BatchNorm2d(c, affine=False)]
    layers += [nn.GroupNorm(divisor(rng, c) or c, c), LayerNorm2d(c)]
    if shape[1] * shape[2] > 1:
        layers += [nn.InstanceNorm2d(c, affine=True), nn.GroupNorm(c, c)]
    return rng.choice(layers)


def pointwise(rng: Random, shape: Shape) -> nn.Module:
    return rng.choice(
        [activation(rng), nn.PReLU(shape[0]), Affine(shape[0]), nn.Dropout2d(0.1)]
    )


def pool(rng: Random, shape: Shape) -> nn.Module | None:
    if min(shape[1:]) < 3:
        return None
    return rng.choice(
        [
            nn.MaxPool2d(2),
            nn.AvgPool2d(3, stride=2, padding=1),
            nn.MaxPool2d(3, stride=1, padding=1),
            nn.AdaptiveAvgPool2d((2, 3)),
            nn.AdaptiveMaxPool2d(3),
        ]
    )


def resample(rng: Random, shape: Shape) -> nn.Module | None:
    if shape[1] < 2:
        return None
    return rng.choice(
        [
            nn.Upsample(size=(5, 6)),
            nn.Upsample(size=(4, 7), mode="bilinear"),
            nn.ZeroPad2d((1, 0, 0, 1)),
            nn.ReplicationPad2d(1),
            nn.ConstantPad2d((0, 1, -1, 1), 0.5),
        ]
    )


def shuffle(rng: Random, shape: Shape) -> nn.Module | None:
    groups = divisor(rng, shape[0])
    if groups is None:
        return None
    return Shuffle(groups) if rng.random() < 0.5 else nn.ChannelShuffle(groups)


def pixel_shuffle(rng: Random, shape: Shape) -> nn.Module:
    conv = nn.Conv2d(shape[0], 4 * rng.randint(2, 6), 1)
    return nn.Sequential(conv, nn.PixelShuffle(2))


def pixel_unshuffle(rng: Random, shape: Shape) -> nn.Module | None:
    c, h, w = shape
    out = rng.randint(3, 6)
    if h % 2 or w % 2:
        return None
    return nn.Sequential(nn.Conv2d(c, out, 1), nn.PixelUnshuffle(2))


def split(rng: Random, shape: Shape) -> nn.Module | None:
    if shape[0] < 2:
        return None
    first = rng.randint(1, shape[0] - 1)
    return SplitTransform(first, shape[0] - first, width(rng))


def channel_slice(rng: Random, shape: Shape) -> nn.Module | None:
    if shape[0] < 4:
        return None
    start = rng.randint(0, shape[0] - 3)
    return Slice(start, rng.randint(start + 2, shape[0]))


def twice(rng: Random, shape: Shape) -> nn.Module:
    layer = nn.Conv2d(shape[0], shape[0], 3, padding=1)
    return Twice(layer, residual=rng.random() < 0.5)


BLOCKS: tuple[Block, ...] = (
    convolution,
    convolution,
    conv_norm_act,
    conv_norm_act,
    grouped,
    depthwise,
    transposed,
    norm,
    pointwise,
    pool,
    resample,
    shuffle,
    pixel_shuffle,
    pixel_unshuffle,
    split,
    channel_slice,
    twice,
    lambda rng, shape: Excite(shape[0], width(rng)),
    lambda rng, shape: ChunkProduct(shape[0], width(rng)),
    lambda rng, shape: PathSelect(shape[0], width(rng)),
    lambda rng, shape: EinsumConv(shape[0], width(rng)),
    lambda rng, shape: nn.Sequential(nn.Conv2d(shape[0], 2 * width(rng), 1), nn.GLU(1)),
    lambda _, shape: PixelMix(*shape[1:]) if shape[1] * shape[2] < 60 else None,
)

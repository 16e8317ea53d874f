"""Random blocks of two inputs, and passages between images, tokens and vectors."""

from random import Random

import torch
from torch import nn

from .shapes import Shape, width


class Add(nn.Module):
    """The mean of two values of one shape."""

    def forward(self, a, b):
        return (a + b) / 2


class Gate(nn.Module):
    """One value, gated by another of its shape."""

    def forward(self, a, b):
        return a * b.sigmoid()


class Maximum(nn.Module):
    """The larger of two values of one shape."""

    def forward(self, a, b):
        return torch.maximum(a, b)


class Concat(nn.Module):
    """Two values side by side along `dim`."""

    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, a, b):
        return torch.cat((a, b), dim=self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class Projected(nn.Module):
    """A join whose second value is first projected to the channels of the first."""

    def __init__(self, layer, join):
        super().__init__()
        self.layer, self.join = layer, join

    def forward(self, a, b):
        return self.join(a, self.layer(b))


class Modulate(nn.Module):
    """Scales and shifts the channels of an image or sequence by a vector."""

    def __init__(self, vector, channels, channel_dim):
        super().__init__()
        self.channel_dim = channel_dim
        self.fc = nn.Linear(vector, 2 * channels)

    def forward(self, a, b):
        shape = [1] * a.ndim
        shape[0], shape[self.channel_dim] = b.shape[0], -1
        scale, shift = self.fc(b).chunk(2, dim=-1)
        return a * scale.reshape(shape).tanh() + shift.reshape(shape)


class CrossAttention(nn.Module):
    """Tokens read other tokens."""

    def __init__(self, channels, other, key, value):
        super().__init__()
        self.q, self.k = nn.Linear(channels, key), nn.Linear(other, key)
        self.v, self.o = nn.Linear(other, value), nn.Linear(value, channels)

    def forward(self, a, b):
        scores = (self.q(a) @ self.k(b).transpose(1, 2)).softmax(-1)
        return a + self.o(torch.matmul(scores, self.v(b)))


class Tokens(nn.Module):
    """(b c h w) -> (b hw c)."""

    def forward(self, x):
        return x.flatten(2).transpose(1, 2)


class Pick(nn.Module):
    """The token at one position."""

    def __init__(self, position):
        super().__init__()
        self.position = position

    def forward(self, x):
        return x[:, self.position]

    def extra_repr(self):
        return f"{self.position}"


class Mean(nn.Module):
    """The mean over some dims."""

    def __init__(self, *dims):
        super().__init__()
        self.dims = dims

    def forward(self, x):
        return x.mean(self.dims)


class ChannelsLast(nn.Module):
    """(b c h w) -> (b hwc)."""

    def forward(self, x):
        return x.permute(0, 2, 3, 1).reshape(x.size(0), -1)


def to_vector(rng: Random, shape: Shape) -> nn.Module:
    """A passage from any shape to (b c)."""
    if len(shape) == 1:
        return nn.Identity()
    pools = [nn.Flatten(), nn.Flatten()]
    if len(shape) == 2:
        pools = [nn.Flatten(), Mean(1), Mean(1), Pick(0), Pick(-1)]
    if len(shape) == 3:
        squeezed = nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten())
        small = nn.Sequential(nn.AdaptiveAvgPool2d((2, 1)), nn.Flatten(1))
        pools += [Mean(2, 3), Mean(-1, -2), squeezed, small, ChannelsLast()]
    return rng.choice(pools)


def passage(rng: Random, shape: Shape) -> nn.Module:
    """From an image to tokens or a vector, from tokens to a vector, and back."""
    if len(shape) == 3 and rng.random() < 0.6:
        return Tokens()
    if len(shape) == 1:
        out = rng.randint(3, 9)
        return nn.Sequential(nn.Linear(shape[0], out * 6), nn.Unflatten(1, (out, 2, 3)))
    return to_vector(rng, shape)


def join(rng: Random, a: Shape, b: Shape) -> nn.Module | None:
    """A random block of two inputs, if these can meet."""
    if len(a) > 1 and len(b) == 1:
        return Modulate(b[0], a[0] if len(a) == 3 else a[1], 1 if len(a) == 3 else -1)
    if len(a) == len(b) == 2 and rng.random() < 0.4:
        return CrossAttention(a[1], b[1], width(rng), width(rng))
    same_place = a[1:] == b[1:] if len(a) != 2 else a[0] == b[0]
    if len(a) != len(b) or not same_place:
        return None
    elementwise = rng.choice([Add(), Add(), Gate(), Maximum()])
    if a == b:
        return rng.choice([elementwise, elementwise, Concat(1 if len(a) == 3 else -1)])
    return rng.choice([_projected(a, b, elementwise), Concat(1 if len(a) == 3 else -1)])


def _projected(a: Shape, b: Shape, elementwise: nn.Module) -> nn.Module:
    if len(a) == 3:
        return Projected(nn.Conv2d(b[0], a[0], 1), elementwise)
    return Projected(nn.Linear(b[-1], a[-1]), elementwise)

"""Random blocks that use a layer twice, write through views, or differ in training."""

from random import Random

import torch
from torch import nn
from torch.nn import functional as F

from .shapes import Block, Shape, activation, width


def channels_of(shape: Shape) -> int:
    return shape[-1] if len(shape) == 2 else shape[0]


def channel_dim(shape: Shape) -> int:
    return -1 if len(shape) == 2 else 1


def layer(shape: Shape, inputs: int, out: int) -> nn.Module:
    """A layer over the channels of a value of this kind."""
    return nn.Conv2d(inputs, out, 1) if len(shape) == 3 else nn.Linear(inputs, out)


class SharedHead(nn.Module):
    """One layer behind two branches."""

    def __init__(self, one, other, act, head):
        super().__init__()
        self.one, self.other, self.act, self.head = one, other, act, head

    def forward(self, x):
        return self.head(self.act(self.one(x))) + self.head(self.act(self.other(x)))


class InTurn(nn.Module):
    """One layer, applied to its own result."""

    def __init__(self, first, act, again):
        super().__init__()
        self.first, self.act, self.again = first, act, again

    def forward(self, x):
        once = self.act(self.again(self.act(self.first(x))))
        return self.act(self.again(once))


class SharedWeight(nn.Module):
    """Two layers with one weight and a bias each."""

    def __init__(self, one, other, act, heads):
        super().__init__()
        self.one, self.other, self.act = one, other, act
        self.heads = nn.ModuleList(heads)
        heads[1].weight = heads[0].weight

    def forward(self, x):
        first, second = self.heads
        return first(self.act(self.one(x))) * second(self.act(self.other(x))).sigmoid()


class ThroughView(nn.Module):
    """Reads a view of what is changed after it was taken."""

    def __init__(self, one, other, act):
        super().__init__()
        self.one, self.other, self.act = one, other, act

    def forward(self, x):
        y = self.one(x)
        seen = y.view(y.shape)
        y.add_(self.other(x))
        return self.act(seen)


class HalfInPlace(nn.Module):
    """Changes one half of a value in place, and reads all of it."""

    def __init__(self, full, act, dim):
        super().__init__()
        self.full, self.act, self.dim = full, act, dim

    def forward(self, x):
        y = self.full(x)
        half = y.shape[self.dim] // 2
        y.narrow(self.dim, 0, half).mul_(y.narrow(self.dim, half, half).sigmoid())
        return self.act(y)


class Noisy(nn.Module):
    """Noise of its own width, and dropout, in training alone."""

    def __init__(self, full, width):
        super().__init__()
        self.full, self.width = full, width

    def forward(self, x):
        y = self.full(x)
        if self.training:
            y = y * (1 + 0.1 * torch.randn(x.shape[0], self.width).to(y))
        return F.dropout(y.relu(), 0.2, self.training)


class Squared(nn.Module):
    """All products of two features of one projection, or their Gram matrix."""

    def __init__(self, full):
        super().__init__()
        self.full = full

    def forward(self, x):
        y = self.full(x)
        return (y[..., :, None] * y[..., None, :]).flatten(-2)


class OnceMore(nn.Module):
    """A layer whose branch in training reads something else."""

    def __init__(self, full, other):
        super().__init__()
        self.full, self.other = full, other

    def forward(self, x):
        y = self.full(x)
        return y + self.other(y).relu() if self.training else y


def shared_head(rng: Random, shape: Shape) -> nn.Module:
    c, n, out = channels_of(shape), width(rng), width(rng)
    one, other = layer(shape, c, n), layer(shape, c, n)
    return SharedHead(one, other, activation(rng), layer(shape, n, out))


def in_turn(rng: Random, shape: Shape) -> nn.Module:
    n = width(rng)
    first = layer(shape, channels_of(shape), n)
    return InTurn(first, activation(rng), layer(shape, n, n))


def shared_weight(rng: Random, shape: Shape) -> nn.Module:
    c, n, out = channels_of(shape), width(rng), width(rng)
    heads = [layer(shape, n, out) for _ in range(2)]
    one, other = layer(shape, c, n), layer(shape, c, n)
    return SharedWeight(one, other, activation(rng), heads)


def through_view(rng: Random, shape: Shape) -> nn.Module:
    c, n = channels_of(shape), width(rng)
    return ThroughView(layer(shape, c, n), layer(shape, c, n), activation(rng))


def half_in_place(rng: Random, shape: Shape) -> nn.Module:
    full = layer(shape, channels_of(shape), width(rng, multiple_of=2))
    return HalfInPlace(full, activation(rng), channel_dim(shape))


def noisy(rng: Random, shape: Shape) -> nn.Module | None:
    if len(shape) != 1:
        return None
    n = width(rng)
    return Noisy(layer(shape, shape[0], n), n)


def squared(rng: Random, shape: Shape) -> nn.Module | None:
    if len(shape) == 3:
        return None
    return Squared(layer(shape, channels_of(shape), rng.randint(2, 5)))


def once_more(rng: Random, shape: Shape) -> nn.Module:
    n = width(rng)
    return OnceMore(layer(shape, channels_of(shape), n), layer(shape, n, n))


BLOCKS: tuple[Block, ...] = (
    shared_head,
    in_turn,
    shared_weight,
    through_view,
    half_in_place,
    noisy,
    squared,
    once_more,
)

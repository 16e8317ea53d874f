"""Random blocks from (b c) to (b c), and what no rule can follow."""

import torch
from torch import nn
from torch.nn import functional as F

from .shapes import Block, activation, divisor, width


class Maxout(nn.Module):
    """The largest of several linear pieces."""

    def __init__(self, channels, units, pieces):
        super().__init__()
        self.pieces = pieces
        self.fc = nn.Linear(channels, units * pieces)

    def forward(self, x):
        return self.fc(x).view(len(x), -1, self.pieces).amax(-1)


class Outer(nn.Module):
    """All products between two small projections, flattened."""

    def __init__(self, channels, rows, columns):
        super().__init__()
        self.rows, self.columns = (
            nn.Linear(channels, rows),
            nn.Linear(channels, columns),
        )

    def forward(self, x):
        return (self.rows(x)[:, :, None] * self.columns(x)[:, None]).flatten(1)


class Tied(nn.Module):
    """Encodes and decodes with one weight."""

    def __init__(self, channels, code):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(code, channels))
        self.bias = nn.Parameter(torch.empty(channels))

    def forward(self, x):
        return F.relu(x @ self.weight.t()) @ self.weight + self.bias


class Thirds(nn.Module):
    """Three unbound slices of a projection, combined."""

    def __init__(self, channels, out):
        super().__init__()
        self.fc = nn.Linear(channels, 3 * out)

    def forward(self, x):
        a, b, c = self.fc(x).reshape(x.shape[0], 3, -1).unbind(1)
        return a * b.sigmoid() + c


class Repeat(nn.Module):
    """The vector twice, one copy negated."""

    def forward(self, x):
        return torch.cat((x, -x), dim=1)


class Coupling(nn.Module):
    """Mixes all units of the last axis: nothing upstream of it may be cut."""

    def __init__(self, name):
        super().__init__()
        self.name = name

    def forward(self, x):
        match self.name:
            case "softmax":
                return x.softmax(-1)
            case "cumsum":
                return x.cumsum(-1) / x.shape[-1]
            case "roll":
                return x.roll(1, dims=-1)
            case _:
                return x - x.mean(-1, keepdim=True)

    def extra_repr(self):
        return self.name


BLOCKS: tuple[Block, ...] = (
    lambda rng, shape: nn.Linear(shape[0], width(rng), bias=rng.random() < 0.7),
    lambda rng, shape: nn.Sequential(nn.Linear(shape[0], width(rng)), activation(rng)),
    lambda rng, shape: nn.Sequential(nn.Linear(shape[0], 2 * width(rng)), nn.GLU()),
    lambda rng, shape: nn.Sequential(nn.BatchNorm1d(shape[0]), activation(rng)),
    lambda rng, shape: Maxout(shape[0], width(rng), rng.randint(2, 4)),
    lambda rng, shape: Outer(shape[0], rng.randint(2, 5), rng.randint(2, 5)),
    lambda rng, shape: Tied(shape[0], width(rng)),
    lambda rng, shape: Thirds(shape[0], width(rng)),
    lambda rng, _: Coupling(rng.choice(["softmax", "cumsum", "roll", "centre"])),
    lambda _, shape: Repeat() if shape[0] < 20 else None,
    lambda rng, shape: (
        nn.Sequential(nn.GroupNorm(groups, shape[0]), nn.Linear(shape[0], width(rng)))
        if (groups := divisor(rng, shape[0]))
        else None
    ),
)

"""A network while it grows, and the plain module it becomes."""

from math import prod
from random import Random

import torch
from torch import Tensor, nn

from . import images, sequences, sharing, vectors
from .joins import join, passage, to_vector
from .shapes import Shape

BLOCKS = {3: images.BLOCKS, 2: sequences.BLOCKS, 1: vectors.BLOCKS}
LARGEST_VALUE = 2400


class Head(nn.Module):
    """Pools each of its inputs to a vector, concatenates them, classifies."""

    def __init__(self, pools: list[nn.Module], channels: int):
        super().__init__()
        self.pools = nn.ModuleList(pools)
        self.fc = nn.Linear(channels, 5)

    def forward(self, *values: Tensor) -> Tensor:
        pooled = [pool(x) for pool, x in zip(self.pools, values, strict=True)]
        return self.fc(torch.cat(pooled, dim=1))


class Network(nn.Module):
    """Value 0 is the input; step i reads the values `sources[i]` and makes one more."""

    def __init__(self, steps: list[nn.Module], sources: list[tuple[int, ...]]):
        super().__init__()
        self.steps = nn.ModuleList(steps)
        self.sources = sources

    def forward(self, x: Tensor) -> Tensor:
        values = [x]
        for step, sources in zip(self.steps, self.sources, strict=True):
            values.append(step(*(values[source] for source in sources)))
        return values[-1]

    def __repr__(self) -> str:
        pairs = zip(self.sources, self.steps, strict=True)
        return "\n".join(
            f"v{i} <- {', '.join(f'v{source}' for source in sources)}: {step}"
            for i, (sources, step) in enumerate(pairs, start=1)
        )


def result_shape(step: nn.Module, *shapes: Shape) -> Shape:
    """The shape that comes out when these go in, without the batch."""
    return tuple(step.eval()(*(torch.zeros(2, *shape) for shape in shapes)).shape[1:])


class Draft:
    """The steps so far, from a stem on, and the shape of every value so far."""

    def __init__(self, rng: Random, shape: Shape, *, shares: bool = False):
        self.rng = rng
        self.shares = shares
        self.shapes = [shape]
        self.steps: list[nn.Module] = []
        self.sources: list[tuple[int, ...]] = []
        self._append(images.convolution(rng, shape), 0)

    def grow(self) -> None:
        """Add one random step; where the drawn one does not fit, draw again."""
        before = len(self.steps)
        while len(self.steps) == before:
            source = self._recent_value()
            draw = self.rng.random()
            if draw < 0.3:
                self._join(source, self._any_value())
            elif draw < 0.45:
                self._append(passage(self.rng, self.shapes[source]), source)
            else:
                self._extend(source)

    def finish(self) -> Network:
        """Let a head read every value that nothing else has read."""
        read = {source for sources in self.sources for source in sources}
        leaves = [value for value in range(len(self.shapes)) if value not in read]
        shapes = [self.shapes[leaf] for leaf in leaves]
        pools = [to_vector(self.rng, shape) for shape in shapes]
        pooled = (result_shape(*pair)[0] for pair in zip(pools, shapes, strict=True))
        head = Head(pools, sum(pooled))
        return Network([*self.steps, head], [*self.sources, tuple(leaves)])

    def _extend(self, source: int) -> None:
        shape = self.shapes[source]
        own = self.shares and self.rng.random() < 0.5
        block = self.rng.choice(sharing.BLOCKS if own else BLOCKS[len(shape)])
        self._append(block(self.rng, shape), source)

    def _join(self, a: int, b: int) -> None:
        self._append(join(self.rng, self.shapes[a], self.shapes[b]), a, b)

    def _append(self, step: nn.Module | None, *sources: int) -> None:
        if step is None:
            return
        shape = result_shape(step, *(self.shapes[source] for source in sources))
        if prod(shape) <= LARGEST_VALUE:
            self.steps.append(step)
            self.sources.append(sources)
            self.shapes.append(shape)

    def _recent_value(self) -> int:
        """Mostly the last value, sometimes one of the two before."""
        newest = len(self.shapes) - 1
        return max(0, newest - self.rng.choice([0, 0, 0, 1, 2]))

    def _any_value(self) -> int:
        return self.rng.randrange(len(self.shapes))

"""Images with their labels, whole in memory, split, and in batches."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from diffprune._core.types import Float, Int

Transform = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Examples:
    """Images with their labels."""

    images: Float[Tensor, "examples channels height width"]
    labels: Int[Tensor, " examples"]

    def __len__(self) -> int:
        """Count the examples."""
        return len(self.labels)

    def take(self, index: Int[Tensor, " chosen"]) -> "Examples":
        """Return the examples at `index`, in its order."""
        return Examples(self.images[index], self.labels[index])


@dataclass(frozen=True)
class Split:
    """Learn from `train`, choose with `validation`, report `test`.

    Without anything to choose there is no `validation`.
    """

    train: Examples
    validation: Examples | None
    test: Examples


@final
class Batches:
    """Examples in batches: what a `DataLoader` does, for data that fits in memory.

    The order is drawn anew from torch's global generator whenever iteration starts.

    Args:
        examples: The examples.
        size: Examples per batch; the last one may be smaller.
        shuffle: Whether the order is random.
        transform: Applied to the images of every batch: augmentation.

    Examples:
        >>> examples = Examples(torch.zeros(5, 1, 2, 2), torch.arange(5))
        >>> [labels.tolist() for _, labels in Batches(examples, 2)]
        [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        examples: Examples,
        size: int,
        *,
        shuffle: bool = False,
        transform: Transform | None = None,
    ) -> None:
        self.examples, self.size = examples, size
        self._shuffle, self._transform = shuffle, transform

    def __len__(self) -> int:
        """Count the batches."""
        return math.ceil(len(self.examples) / self.size)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        count = len(self.examples)
        order = torch.randperm(count) if self._shuffle else torch.arange(count)
        for index in order.split(self.size):
            batch = self.examples.take(index)
            change = self._transform
            images = batch.images if change is None else change(batch.images)
            yield images, batch.labels


def hold_out(examples: Examples, count: int) -> tuple[Examples, Examples]:
    """Set the last `count` examples of a fixed shuffle aside; no seed changes which."""
    shuffled = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0))
    return examples.take(shuffled[:-count]), examples.take(shuffled[-count:])

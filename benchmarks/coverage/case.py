"""One model of the table: how to build it and call it; not how it is pruned."""

import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import Tensor, nn

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Case:
    """A public architecture with random weights.

    Args:
        zoo: The library it comes from.
        name: Its name in that library.
        build: Constructs the model, without pretrained weights.
        inputs: Positional arguments for one forward pass, batch 2.
    """

    zoo: str
    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], Inputs]

    @property
    def key(self) -> str:
        """Unique over all zoos."""
        return f"{self.zoo}/{self.name}"


def select(cases: Iterable[Case], pattern: str) -> list[Case]:
    """The cases whose name or key matches a shell pattern."""
    return [
        case
        for case in cases
        if fnmatch.fnmatch(case.name, pattern) or fnmatch.fnmatch(case.key, pattern)
    ]

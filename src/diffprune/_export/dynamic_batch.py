"""The batch dimension of example inputs.

A graph is only as general as what it was traced with: sizes 0 and 1 are taken for
constants, so inputs are repeated until there are at least two examples.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from diffprune._core.leaves import leaves_of
from diffprune._graph import ExampleInputs
from diffprune.errors import ArgumentError


def batch_size(inputs: ExampleInputs, dim: int) -> int:
    """Number of examples in the inputs.

    Raises:
        ArgumentError: If their tensors do not agree on it.
    """
    shapes = [tuple(tensor.shape) for tensor in leaves_of(Tensor, inputs)]
    sizes = {shape[dim] if -len(shape) <= dim < len(shape) else 0 for shape in shapes}
    if len(sizes) != 1 or 0 in sizes:
        raise ArgumentError(
            f"the inputs, of shapes {', '.join(map(str, shapes)) or 'none'}, do not "
            f"have a batch dimension {dim} in common.\n"
            "For a graph with fixed shapes pass `batch_dim=None`."
        )
    return sizes.pop()


def resized(inputs: ExampleInputs, dim: int, size: int) -> Any:  # noqa: ANN401 - as nested as given
    """The inputs with another number of examples, repeated or left out in turn.

    Examples:
        >>> resized(torch.tensor([[1, 2], [3, 4]]), 0, 3).tolist()
        [[1, 2], [3, 4], [1, 2]]
    """

    def resize(x: Tensor) -> Tensor:
        turns = torch.arange(size, device=x.device) % x.shape[dim]
        return x.index_select(dim, turns)

    return pytree.tree_map_only(Tensor, resize, inputs)

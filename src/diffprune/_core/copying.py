"""Deep copies of models that hold results of computations. Knows no layers.

torch refuses to copy a tensor that was computed with gradients: one that a model keeps
from its last forward, or the weight that a hook of `weight_norm`, `spectral_norm` or
`torch.nn.utils.prune` has computed from other parameters. Such a tensor is no state of
the model, so its numbers are copied and its history is not.
"""

import copy
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from torch import Tensor, nn

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def copied(model: ModuleT, memo: Mapping[int, Any] | None = None) -> ModuleT:
    """Return a deep copy.

    Args:
        model: Left as it is.
        memo: What to take for the copies of some objects, by `id`.

    Examples:
        >>> import torch
        >>> layer = nn.Linear(2, 3)
        >>> layer.last = layer(torch.ones(1, 2))
        >>> copied(layer).last.requires_grad
        False
    """
    computed = {id(tensor): tensor for tensor in _computed(model)}
    detached = {key: tensor.detach().clone() for key, tensor in computed.items()}
    return copy.deepcopy(model, {**detached, **(memo or {})})


def _computed(model: nn.Module) -> Iterator[Tensor]:
    """Tensors with a history that modules hold, also within lists and dicts."""
    for module in model.modules():
        yield from _inside(vars(module), depth=4)


def _inside(held: object, depth: int) -> Iterator[Tensor]:
    if isinstance(held, Tensor):
        if not held.is_leaf:
            yield held
    elif depth and isinstance(held, dict | list | tuple | set):
        items = held.values() if isinstance(held, dict) else held
        for item in items:
            yield from _inside(item, depth - 1)

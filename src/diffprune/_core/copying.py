"""Deep copies of models that hold results of computations.

torch refuses to copy a tensor that was computed with gradients: one that a model keeps
from its last forward, or the weight that a hook of `weight_norm`, `spectral_norm` or
`torch.nn.utils.prune` has computed from other parameters. Such a tensor is no state of
the model, so its numbers are copied and its history is not.
"""

import copy
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from torch import Tensor, nn

ModuleT = TypeVar("ModuleT", bound=nn.Module)

_ROWS: Final = (list, tuple, set)


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
    return copy.deepcopy(model, {**_no_hooks(model), **detached, **(memo or {})})


def _no_hooks(model: nn.Module) -> dict[int, Any]:
    """The copies of all ordered dicts that are empty.

    A module has a dozen, one for every kind of hook, and `deepcopy` takes longer for
    them than for everything else.
    """
    copies = dict[int, Any]()
    for module in model.modules():
        for held in vars(module).values():
            if type(held) is OrderedDict and not held:
                copies[id(held)] = OrderedDict()
    return copies


def _computed(model: nn.Module) -> Iterator[Tensor]:
    """Tensors with a history that modules hold, also within lists and dicts."""
    for module in model.modules():
        yield from _inside(vars(module).values(), depth=3)


def _inside(items: Iterable[object], depth: int) -> Iterator[Tensor]:
    for item in items:
        if isinstance(item, Tensor):
            if not item.is_leaf:
                yield item
        elif depth and isinstance(item, dict):
            yield from _inside(item.values(), depth - 1)
        elif depth and isinstance(item, _ROWS):
            yield from _inside(item, depth - 1)

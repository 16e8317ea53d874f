"""Deep copies of models that hold results of computations.

torch refuses to copy a tensor that was computed with gradients: one that a model keeps
from its last forward, or the weight that a hook of `weight_norm`, `spectral_norm` or
`torch.nn.utils.prune` has computed from other parameters. Such a tensor is no state of
the model, so its numbers are copied and its history is not.
"""

import copy
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeVar

from torch import Tensor, nn

ModuleT = TypeVar("ModuleT", bound=nn.Module)

_HOLDERS: Final = (dict, list, tuple, set)
_CONTAINERS: Final = {OrderedDict, dict, list, set}
_ATOMS: Final = {bool, int, float, str, type(None)}


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
    copies: dict[int, Any] = _nothing(model)
    for tensor in _computed(model):
        copies[id(tensor)] = tensor.detach().clone()
    copies |= memo or {}
    plain = [m for m in model.modules() if id(m) not in copies and _is_plain(type(m))]
    copies |= {id(module): object.__new__(type(module)) for module in plain}
    for module in plain:
        vars(copies[id(module)]).update(
            (name, held if type(held) in _ATOMS else copy.deepcopy(held, copies))
            for name, held in module.__getstate__().items()
        )
    return copy.deepcopy(model, copies)


def _nothing(model: nn.Module) -> dict[int, Any]:
    """The copies of all empty containers that modules hold.

    A module has a dozen, one for every kind of hook, and `deepcopy` takes longer for
    them than for everything else.
    """
    return {
        id(held): type(held)()
        for module in model.modules()
        for held in vars(module).values()
        if type(held) in _CONTAINERS and not held
    }


@cache
def _is_plain(kind: type[nn.Module]) -> bool:
    """Whether a copy of a module is an object of its class with copied attributes.

    Then it is faster to make it here than to let `deepcopy` find that out.
    """
    own = ("__new__", "__reduce_ex__", "__reduce__", "__getstate__", "__setstate__")
    return (
        not hasattr(kind, "__deepcopy__")
        and all(getattr(kind, name) is getattr(nn.Module, name) for name in own)
        and not any(vars(base).get("__slots__") for base in kind.__mro__)
    )


def _computed(model: nn.Module) -> Iterator[Tensor]:
    """Tensors with a history that modules hold, also within lists and dicts."""
    for module in model.modules():
        yield from _inside(vars(module).values(), depth=3)


def _inside(items: Iterable[object], depth: int) -> Iterator[Tensor]:
    for item in items:
        if isinstance(item, Tensor):
            if not item.is_leaf:
                yield item
        elif depth and isinstance(item, _HOLDERS) and item:
            inner = item.values() if isinstance(item, dict) else item
            yield from _inside(inner, depth - 1)

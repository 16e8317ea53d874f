"""All that can be reached from some objects, noted so that it can be put back.

Whatever fails half-way leaves everything as it was: the same objects, in the same
places. Only the places are copied, and the numbers of tensors that will be overwritten.
"""

from collections import deque
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import is_dataclass
from typing import Any, Final, final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

_OURS: Final = "diffprune."


@final
class Snapshot:
    """What modules, optimizers, containers and objects of this library hold.

    Args:
        roots: Where to start. Frozen data, tensors and objects of other libraries are
            noted, and not looked into.
        overwritten: Tensors whose numbers are copied.
        lent: Tensors whose memory is noted, because they will get another.
    """

    def __init__(
        self,
        roots: Iterable[object],
        overwritten: Iterable[Tensor] = (),
        lent: Iterable[Tensor] = (),
    ) -> None:
        self._held: dict[int, tuple[Any, Any]] = {}
        tensors = dict.fromkeys(overwritten)
        self._values = [(t, t.detach().clone(), t.grad) for t in tensors]
        self._memory = [(t, t.data, t.grad) for t in dict.fromkeys(lent)]
        waiting = deque(roots)
        kinds = dict[type, bool]()  # most of what is held is of few kinds
        while waiting:
            found = waiting.popleft()
            kind = type(found)
            is_open = kinds.get(kind)
            if is_open is None:
                is_open = kinds[kind] = _is_open(kind)
            if is_open and id(found) not in self._held:
                content = _content(found)
                self._held[id(found)] = found, content
                waiting.extend(_items(content))

    @torch.no_grad()
    def restore_(self) -> None:
        """Put everything back."""
        for found, content in self._held.values():
            _put_back_(found, content)
        for tensor, memory, grad in self._memory:
            tensor.grad = grad
            tensor.data = memory
        for tensor, value, grad in self._values:
            tensor.grad = grad
            if tensor.shape == value.shape:
                tensor.copy_(value)
            else:
                tensor.data = value


@contextmanager
def all_or_nothing(
    *roots: object, overwritten: Iterable[Tensor] = (), lent: Iterable[Tensor] = ()
) -> Generator[None]:
    """Put everything back that these objects hold if the block raises.

    What is made in the block can be trained, even within `torch.inference_mode()`.

    Args:
        *roots: Models, optimizers, pruners.
        overwritten: Tensors whose numbers the block may change in place.
        lent: Tensors that the block gives other memory before it changes them.

    Examples:
        >>> layer = nn.Linear(2, 3)
        >>> weight = layer.weight
        >>> with all_or_nothing(layer):
        ...     layer.weight = nn.Parameter(torch.ones(1, 2))
        ...     raise ValueError("no")
        Traceback (most recent call last):
        ...
        ValueError: no
        >>> layer.weight is weight
        True
    """
    before = Snapshot(roots, overwritten, lent)
    try:
        with ExitStack() as stack:
            if torch.is_inference_mode_enabled():
                stack.enter_context(torch.inference_mode(mode=False))
            yield
    except BaseException:
        before.restore_()
        raise


def _is_open(kind: type) -> bool:
    """Whether objects of a kind can change, and are looked into."""
    if issubclass(kind, dict | list | set | deque | nn.Module | Optimizer):
        return True
    is_ours = kind.__module__.startswith(_OURS) and kind.__dictoffset__ != 0
    return is_ours and not issubclass(kind, type) and not _is_frozen(kind)


def _is_frozen(kind: type) -> bool:
    return is_dataclass(kind) and kind.__dataclass_params__.frozen  # pyright: ignore[reportAttributeAccessIssue] - every data class has them


def _content(found: Any) -> Any:  # noqa: ANN401 - of any kind
    if isinstance(found, dict):
        return dict(found)
    if isinstance(found, list | set | deque):
        return list(found)
    return type(found), dict(vars(found))


def _items(content: Any) -> Iterable[object]:  # noqa: ANN401 - of any kind
    held = content[1] if isinstance(content, tuple) else content
    return held.values() if isinstance(held, dict) else held


def _put_back_(found: Any, content: Any) -> None:  # noqa: ANN401 - of any kind
    if isinstance(found, dict | set):
        if _differs(found, content):
            found.clear()
            found.update(content)
    elif isinstance(found, list | deque):
        found.clear()
        found.extend(content)
    else:
        kind, held = content
        if type(found) is not kind:  # parametrized layers change their class
            found.__class__ = kind
        vars(found).clear()
        vars(found).update(held)


def _differs(found: Any, content: Any) -> bool:  # noqa: ANN401 - of any kind
    if isinstance(found, set) or len(found) != len(content):
        return True
    pairs = zip(found.items(), content.items(), strict=True)
    return any(a is not c or b is not d for (a, b), (c, d) in pairs)

"""Let a model keep what it would compute a second time on the way back.

Code within `torch.utils.checkpoint` runs again in the backward pass, when nobody
watches it any more. Where a model only runs to be looked at, it runs once.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

from torch.utils import checkpoint as checkpointing

_LOCK: Final = threading.Lock()
_NAMES: Final = ("CheckpointFunction", "_checkpoint_without_reentrant_generator")
_replaced = list[tuple[Any, ...]]()
"""What torch has under these names, once for every block that is open."""


@contextmanager
def without_recomputing() -> Generator[None]:
    """Within this block, `torch.utils.checkpoint` computes once and keeps all of it.

    Examples:
        >>> import torch
        >>> calls = []
        >>> def part(x):
        ...     calls.append(1)
        ...     return x.exp()
        >>> x = torch.ones(2, requires_grad=True)
        >>> with without_recomputing():
        ...     checkpointing.checkpoint(part, x, use_reentrant=False).sum().backward()
        >>> len(calls)
        1
    """
    with _LOCK:
        own = _replaced[-1] if _replaced else _present()
        _replaced.append(own)
        for name, value in zip(_NAMES, (_Kept, _nothing_around), strict=True):
            setattr(checkpointing, name, value)
    try:
        yield
    finally:
        with _LOCK:  # an error in a call of ours would leave it so
            own = _replaced.pop()
            if not _replaced:
                for name, value in zip(_NAMES, own, strict=True):
                    setattr(checkpointing, name, value)


def _present() -> tuple[Any, ...]:
    return tuple(getattr(checkpointing, name) for name in _NAMES)


class _Kept:
    """Stands where the reentrant form has its function."""

    @staticmethod
    def apply(function: Callable[..., Any], preserve: object, *args: object) -> Any:  # noqa: ANN401 - whatever it returns
        """Compute it as it is."""
        del preserve
        return function(*args)


def _nothing_around(*_: object, **__: object) -> Generator[None]:
    """Stand where the other form prepares a second run."""
    yield

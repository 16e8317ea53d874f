"""Hooks for the time of a block. Knows nothing of what they do."""

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from torch.utils.hooks import RemovableHandle


@contextmanager
def hooked(handles: Iterable[RemovableHandle]) -> Generator[None]:
    """Remove these hooks when the block ends, however it ends."""
    registered = list(handles)
    try:
        yield
    finally:
        for handle in registered:
            handle.remove()

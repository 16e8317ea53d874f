"""A digest of tensors and plain values, so that damage is found before it is used.

It is fast enough to be taken of every file. The bytes of a tensor are laid out as a
grid of 64-bit words; the sums of its rows and of its columns are hashed. One changed
word changes both, and so do words that change places; only words that change by
opposite amounts in the corners of a rectangle would go unnoticed. It finds accidents:
whoever forges a file can forge its digest too.
"""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from diffprune.errors import ArgumentError

_COLUMNS: Final = 4096
_WORD: Final = 8
_PLAIN: Final = (
    bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device
)  # fmt: skip
_TENSORS: Final = (Tensor, nn.Parameter, nn.Buffer)
_MAPPINGS: Final = (dict, OrderedDict, Counter)
_SEQUENCES: Final = (list, tuple, torch.Size)


def digest(value: object, name: str = "the value") -> str:
    """Condense tensors and plain values, however nested, into 64 characters.

    Args:
        value: A tensor, a number, text, None, or dicts, lists, tuples and sets of them.
        name: What messages call it.

    Raises:
        ArgumentError: If something else is in it, which a file without pickle cannot
            hold; the message says where.

    Examples:
        >>> digest({"a": torch.ones(2)}) == digest({"a": torch.ones(2)})
        True
        >>> digest({"a": torch.ones(2)}) == digest({"a": torch.ones(2, 1)})
        False
    """
    found = hashlib.sha256()
    try:
        for part in _parts(value, name):
            found.update(b"%d:" % len(part))
            found.update(part)
    except RecursionError as error:
        raise ArgumentError(f"{name} is nested too deeply to be saved.") from error
    return found.hexdigest()


def _parts(value: Any, name: str) -> Iterator[Any]:  # noqa: ANN401 - told apart here
    kind = type(value)
    if kind in _TENSORS:
        yield f"tensor {value.dtype} {tuple(value.shape)}".encode()
        yield from _sums(value, name)
    elif kind in _MAPPINGS:
        yield f"mapping {len(value)}".encode()
        for key, item in value.items():
            yield from _parts(key, f"a key of {name}")
            yield from _parts(item, f"{name}[{key!r}]")
    elif kind in _SEQUENCES:
        yield f"{kind.__name__} {len(value)}".encode()
        for index, item in enumerate(value):
            yield from _parts(item, f"{name}[{index}]")
    elif kind is set:
        yield from _parts(sorted(value, key=repr), name)
    elif kind in _PLAIN:
        yield f"{kind.__name__} {value!r}".encode()
    else:
        raise ArgumentError(
            f"{name} is a {kind.__module__}.{kind.__qualname__}, which a file without "
            "pickled code cannot hold.\nSave tensors, numbers, text, and dicts, lists "
            "or tuples of them."
        )


def _sums(tensor: Tensor, name: str) -> Iterator[Any]:
    """Sums along the rows and columns of a grid of words, and what does not fill it."""
    if tensor.is_meta:
        raise ArgumentError(f"{name} is on the meta device and has no values.")
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    words = flat[: len(flat) // _WORD * _WORD].view(np.int64)
    filled = len(words) // _COLUMNS * _COLUMNS
    grid = words[:filled].reshape(-1, _COLUMNS)
    yield grid.sum(0).data
    yield grid.sum(1).data
    yield flat[filled * _WORD :].data

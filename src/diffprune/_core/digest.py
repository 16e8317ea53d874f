"""A digest of tensors and plain values, so that damage is found before it is used.

It is XXH3 of 128 bits, which keeps up with memory. It finds accidents: whoever forges a
file can forge its digest too.
"""

import json

import torch
import xxhash
from torch import Tensor

from diffprune._core.nested import take_apart


def digest(value: object, name: str = "the value") -> str:
    """Condense tensors and plain values, however nested, into 32 characters.

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
    tree, tensors = take_apart(value, name)
    found = [describe(tensor, _of_bytes(tensor)) for tensor in tensors]
    return xxhash.xxh3_128_hexdigest(json.dumps([tree, found]).encode())


def describe(tensor: Tensor, of_bytes: str) -> list[str]:
    """What tells a tensor from others: its type, its shape, a digest of its bytes."""
    return [str(tensor.dtype), str(tuple(tensor.shape)), of_bytes]


def as_bytes(tensor: Tensor) -> memoryview:
    """The memory of a contiguous tensor on the CPU; what is written there is in it.

    Examples:
        >>> ones = torch.ones(2, dtype=torch.int16)
        >>> as_bytes(ones)[0] = 7
        >>> ones
        tensor([7, 1], dtype=torch.int16)
    """
    return tensor.detach().reshape(-1).view(torch.uint8).numpy().data


def _of_bytes(tensor: Tensor) -> str:
    return xxhash.xxh3_128_hexdigest(as_bytes(tensor.cpu().contiguous()))

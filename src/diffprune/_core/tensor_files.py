"""Safetensors files that carry a digest, and are mapped into memory, not read.

All bytes are digested where they are, before anything is done with them; whoever needs
some of them copies them, once. A file may belong to another: then it also carries a
digest of that.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import safetensors
import safetensors.torch
import torch
import xxhash
from torch import Tensor

from diffprune._core.digest import as_bytes, describe, digest
from diffprune._core.files import BLUEPRINT, WEIGHTS, check_readable, reading
from diffprune.errors import ArgumentError

_DIGEST: Final = "xxh3"
_BESIDE: Final = "blueprint"
_RESERVED: Final = "__metadata__"
_MANY_PAGES: Final = 1 << 25
"""Bytes; smaller memory may be some that the process had before, with all its pages."""
_ALIGNED: Final = 64


def packed(
    tensors: Mapping[str, Tensor],
    blueprint: str | None = None,
    **header: str,
) -> bytes:
    """A safetensors file of tensors, of what they belong to, and of a digest of both.

    Args:
        tensors: By name.
        blueprint: The text of the file that has to be beside this one, if any.
        **header: More text, for the header.

    Raises:
        ArgumentError: If the format has no place for one of them.
    """
    copies = {name: _copy(name, tensor) for name, tensor in tensors.items()}
    belongs = {} if blueprint is None else {_BESIDE: digest(blueprint)}
    metadata = {"format": "pt", **belongs, **header}
    metadata[_DIGEST] = _digest(copies, metadata)
    try:
        return safetensors.torch.save(copies, metadata)
    except KeyError as error:
        raise ArgumentError(
            f"a safetensors file cannot hold numbers of type {error}."
        ) from error


def map_tensors(
    path: Path, blueprint: str | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file, mapped into memory, and the header they were written with.

    They are for comparing and copying from, and for nothing that lasts: what somebody
    writes into the file, in place, appears in them. `copied` makes others of them.

    Raises:
        MissingFileError: If there is no such file.
        ArgumentError: If the file is damaged, or of another blueprint.
    """
    with reading(path):
        check_readable(path)
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                header = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        except Exception as error:
            raise ArgumentError(
                f"`{path}` is damaged, or not a file that diffprune wrote: {error}"
            ) from error
        found = _digest(tensors, header)
    _check(path, header, found, blueprint)
    return tensors, header


def read_tensors(
    path: Path, blueprint: str | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The same as `map_tensors`, in memory of their own."""
    tensors, header = map_tensors(path, blueprint)
    return {name: copied(tensor) for name, tensor in tensors.items()}, header


def copied(tensor: Tensor, device: torch.device | None = None) -> Tensor:
    """The numbers of a mapped tensor in new memory, on the CPU unless told otherwise.

    Examples:
        >>> ones = torch.ones(2)
        >>> copied(ones).add_(1), ones
        (tensor([2., 2.]), tensor([1., 1.]))
    """
    if device is not None and device.type != "cpu":
        return tensor.to(device)
    return new_like(tensor).copy_(tensor)


def new_like(like: Tensor) -> Tensor:
    """A tensor that is not filled yet, of few pages: a system is slow to give many.

    Examples:
        >>> new_like(torch.ones(2, 3)).shape
        torch.Size([2, 3])
    """
    if like.nbytes < _MANY_PAGES:
        return torch.empty(like.shape, dtype=like.dtype, device="cpu")
    # NumPy asks the system for huge pages, and aligns less than torch.
    raw = np.empty(like.nbytes + _ALIGNED, np.uint8)
    start = -raw.ctypes.data % _ALIGNED
    room = torch.from_numpy(raw[start : start + like.nbytes])
    return room.view(like.dtype).view(like.shape)


def stored_digest(file: BinaryIO) -> str:
    """The digest that a file of `packed` carries, which tells two such files apart."""
    length = int.from_bytes(file.read(8), "little")
    return json.loads(file.read(length))[_RESERVED][_DIGEST]


def stored_size(tensors: Mapping[str, Tensor]) -> int:
    """Bytes that a safetensors file of these has, however they lie in memory."""
    copies = {name: _copy(name, tensor) for name, tensor in tensors.items()}
    return len(safetensors.torch.save(copies))


def _check(
    path: Path, header: dict[str, str], found: str, blueprint: str | None
) -> None:
    expected = header.pop(_DIGEST, None)
    if expected is None:
        raise ArgumentError(
            f"`{path}` carries no digest of what it holds, so damage could not be "
            "noticed: it was written by something else, or by an earlier diffprune.\n"
            "Save it again with this one."
        )
    if expected != found:
        raise ArgumentError(
            f"`{path}` is damaged: what it holds is not what was written.\nCopy it "
            "again from where it came, or save it again. Nothing was loaded."
        )
    if blueprint is not None and header.get(_BESIDE) != digest(blueprint):
        raise ArgumentError(
            f"`{path}` and what is beside it, `{BLUEPRINT}` or `{WEIGHTS}`, were not "
            "saved together, or one of them is damaged.\nSave the model again, or copy "
            "the whole folder."
        )


def _copy(name: str, tensor: Tensor) -> Tensor:
    if name == _RESERVED:
        raise ArgumentError(
            f"a safetensors file cannot hold a tensor of the name `{_RESERVED}`, which "
            "is that of its own notes. Rename it."
        )
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise ArgumentError(
            f"`{name}` is stored as {tensor.layout}, which a safetensors file cannot "
            "hold. Make it dense first."
        )
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def _digest(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    """What a file holds; the order in which it holds it is the format's own."""
    plain = sorted((k, v) for k, v in header.items() if k != _DIGEST)
    return digest([plain, [[n, *_describe(tensors[n])] for n in sorted(tensors)]])


def _describe(tensor: Tensor) -> list[str]:
    return describe(tensor, xxhash.xxh3_128_hexdigest(as_bytes(tensor)))

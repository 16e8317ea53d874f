"""Safetensors files that carry a digest, and are read once.

Every byte is digested on its way from the file into memory, while it is still in the
processor's cache. A file may belong to another: then it also carries a digest of that.
"""

import json
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import safetensors
import safetensors.torch
import torch
import xxhash
from torch import Tensor

from diffprune._core.digest import as_bytes, describe, digest
from diffprune._core.files import BLUEPRINT, WEIGHTS, reading
from diffprune.errors import ArgumentError

_DIGEST: Final = "xxh3"
_BESIDE: Final = "blueprint"
_PIECE: Final = 1 << 18
"""Bytes that are read, then digested: few enough for any cache."""
_MANY_PAGES: Final = 1 << 22
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
    found = {name: xxhash.xxh3_128_hexdigest(as_bytes(t)) for name, t in copies.items()}
    metadata[_DIGEST] = _digest(copies, found, metadata)
    try:
        return safetensors.torch.save(copies, metadata)
    except KeyError as error:
        raise ArgumentError(
            f"a safetensors file cannot hold numbers of type {error}."
        ) from error


def read_tensors(
    path: Path, blueprint: str | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors, and the header they were written with.

    Raises:
        MissingFileError: If there is no such file.
        ArgumentError: If the file is damaged, or of another blueprint.
    """
    found = dict[str, str]()
    with reading(path), path.open("rb", buffering=0) as file:
        header, places = _layout(path, file)
        for start, name, tensor in places:
            file.seek(start)
            found[name] = _fill_(tensor, file, path)
    tensors = {name: tensor for _, name, tensor in places}
    _check(path, header, _digest(tensors, found, header), blueprint)
    return tensors, header


def new_like(like: Tensor) -> Tensor:
    """A tensor that is not filled yet, of few pages: a system is slow to give many.

    Examples:
        >>> new_like(torch.ones(2, 3)).shape
        torch.Size([2, 3])
    """
    if like.nbytes < _MANY_PAGES:
        return torch.empty(like.shape, dtype=like.dtype)
    # NumPy asks the system for huge pages, and aligns less than torch.
    raw = np.empty(like.nbytes + _ALIGNED, np.uint8)
    start = -raw.ctypes.data % _ALIGNED
    room = torch.from_numpy(raw[start : start + like.nbytes])
    return room.view(like.dtype).view(like.shape)


def stored_digest(file: BinaryIO) -> str:
    """The digest that a file of `packed` carries, which tells two such files apart."""
    return _read_header(file)[0]["__metadata__"][_DIGEST]


def stored_size(tensors: Mapping[str, Tensor]) -> int:
    """Bytes that a safetensors file of these has, however they lie in memory."""
    copies = {name: _copy(name, tensor) for name, tensor in tensors.items()}
    return len(safetensors.torch.save(copies))


def _layout(
    path: Path, file: FileIO
) -> tuple[dict[str, str], list[tuple[int, str, Tensor]]]:
    """The header of a file; and where each tensor begins, its name, room for it."""
    try:
        with safetensors.safe_open(path, framework="pt") as checked:
            # Only looked at: what is mapped into memory would change with the file.
            room = {name: new_like(checked.get_tensor(name)) for name in checked.keys()}  # noqa: SIM118 - no mapping
        header, start = _read_header(file)
        places = [(start + header[n]["data_offsets"][0], n, t) for n, t in room.items()]
    except Exception as error:
        raise ArgumentError(
            f"`{path}` is damaged, or not a file that diffprune wrote: {error}"
        ) from error
    return header.get("__metadata__", {}), sorted(places, key=lambda place: place[0])


def _read_header(file: BinaryIO | FileIO) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file, and where the numbers begin."""
    length = int.from_bytes(file.read(8), "little")
    return json.loads(file.read(length)), 8 + length


def _fill_(tensor: Tensor, file: FileIO, path: Path) -> str:
    """Read a tensor from where the file is now; return a digest of its bytes."""
    found, room = xxhash.xxh3_128(), as_bytes(tensor)
    done = 0
    while done < len(room):
        piece = room[done : done + _PIECE]
        length = file.readinto(piece)
        if not length:
            raise ArgumentError(f"`{path}` is damaged: it ends early.")
        found.update(piece[:length])
        done += length
    return found.hexdigest()


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
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise ArgumentError(
            f"`{name}` is stored as {tensor.layout}, which a safetensors file cannot "
            "hold. Make it dense first."
        )
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def _digest(
    tensors: Mapping[str, Tensor], found: Mapping[str, str], header: Mapping[str, str]
) -> str:
    """What a file holds; the order in which it holds it is the format's own."""
    plain = sorted((k, v) for k, v in header.items() if k != _DIGEST)
    return digest(
        [plain, [[n, *describe(tensors[n], found[n])] for n in sorted(found)]]
    )

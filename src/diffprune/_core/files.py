"""Files that appear whole or not at all, and tensors in safetensors files.

Every file of tensors carries a digest of the blueprint it belongs to: a folder in which
only some files were replaced is noticed, not loaded.
"""

import hashlib
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from diffprune.errors import ArgumentError

BLUEPRINT: Final = "blueprint.json"
WEIGHTS: Final = "model.safetensors"
OPTIMIZER: Final = "optimizer.safetensors"


@contextmanager
def written_whole(path: Path) -> Generator[Path]:
    """Give a place to write a file to; the file gets its name once nothing failed.

    Files that are written beside it, such as `model.onnx.data`, are moved along with
    it. An older file of that name stays until then. Its folder is made if need be.

    Examples:
        >>> target = Path(tempfile.mkdtemp()) / "notes.txt"
        >>> with written_whole(target) as partial:
        ...     _ = partial.write_text("all of it")
        ...     print(target.exists())
        False
        >>> target.read_text()
        'all of it'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".partial-") as folder:
        yield Path(folder) / path.name
        for file in Path(folder).iterdir():
            file.replace(path.parent / file.name)


def write_text(path: Path, text: str) -> None:
    """Replace a file once the new one is complete."""
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], blueprint: str, **header: str
) -> None:
    """Write tensors, and what they belong to, all or nothing.

    Raises:
        ArgumentError: If the format has no place for one of them.
    """
    copies = {name: _copy(name, tensor) for name, tensor in tensors.items()}
    metadata = {"format": "pt", "blueprint": _digest(blueprint), **header}
    try:
        with written_whole(path) as partial:
            safetensors.torch.save_file(copies, partial, metadata=metadata)
    except KeyError as error:
        raise ArgumentError(
            f"a safetensors file cannot hold numbers of type {error}."
        ) from error


def read_text(path: Path) -> str:
    """Read a text file.

    Raises:
        ArgumentError: If it is not text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ArgumentError(f"`{path}` is damaged: {error}") from error


def read_tensors(
    path: Path, blueprint: str
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors, and the header they were written with.

    Raises:
        ArgumentError: If the file is damaged, or of another blueprint.
    """
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = dict(file.metadata() or {})
            if header.get("blueprint") == _digest(blueprint):
                # Copies: what is mapped into memory would change with the file.
                names = file.keys()
                return {name: file.get_tensor(name).clone() for name in names}, header
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ArgumentError(f"`{path}` is damaged: {error}") from error
    raise ArgumentError(
        f"`{path}` and the `{BLUEPRINT}` beside it were not saved together. Save the "
        "model again, or copy the whole folder."
    )


def remove(path: Path) -> None:
    """Delete a file that may not exist."""
    with suppress(FileNotFoundError):
        path.unlink()


def stored_size(tensors: Mapping[str, Tensor]) -> int:
    """Bytes that a safetensors file of these has, however they lie in memory."""
    copies = {name: _copy(name, tensor) for name, tensor in tensors.items()}
    return len(safetensors.torch.save(copies))


def _copy(name: str, tensor: Tensor) -> Tensor:
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise ArgumentError(
            f"`{name}` is stored as {tensor.layout}, which a safetensors file cannot "
            "hold. Make it dense first."
        )
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def _digest(blueprint: str) -> str:
    return hashlib.sha256(blueprint.encode()).hexdigest()

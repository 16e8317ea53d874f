"""Files that are whole or absent, and tensors in them. Knows no models, no optimizers.

A file is written beside its place, brought to the disk, and only then given its name:
whatever happens on the way, the earlier file is intact. Files of tensors carry a
digest of all they hold, and of the blueprint that they belong to: damage, and a folder
in which only some files were replaced, are noticed, not loaded.
"""

import errno
import hashlib
import json
import os
import secrets
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from diffprune._core.digest import digest
from diffprune.errors import ArgumentError, MissingFileError, StorageError

BLUEPRINT: Final = "blueprint.json"
WEIGHTS: Final = "model.safetensors"
OPTIMIZER: Final = "optimizer.safetensors"
_DIGEST: Final = "digest"


def write_files(contents: Mapping[Path, bytes | memoryview]) -> None:
    """Replace files, all in one folder, once all new ones are complete and on the disk.

    Their folder is made if need be.

    Raises:
        StorageError: If the disk refuses; the earlier files are as they were.
    """
    partials = {path: _partial(path) for path in contents}
    first = next(iter(contents))
    make_folder(first.parent)
    with storing(first):
        try:
            for path, data in contents.items():
                _write(partials[path], data)
            for path, partial in partials.items():
                partial.replace(path)
        finally:
            for partial in partials.values():
                remove(partial)
        sync(first.parent)


def _partial(path: Path) -> Path:
    """A name that nobody can have put a link under."""
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.partial")


def _write(path: Path, data: bytes | memoryview) -> None:
    # Only a new file, with the rights that the umask leaves.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor has no path
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Replace a file once the new one is complete and on the disk.

    Raises:
        StorageError: If the disk refuses; the earlier file is as it was.
    """
    write_files({path: data})


@contextmanager
def written_whole(path: Path) -> Generator[Path]:
    """Give a place to write a file to; the file gets its name once nothing failed.

    Files that are written beside it, such as `model.onnx.data`, are moved along with
    it. An older file of that name stays until then. Its folder is made if need be.

    Raises:
        StorageError: If the disk refuses; the earlier files are as they were.

    Examples:
        >>> target = Path(tempfile.mkdtemp()) / "notes.txt"
        >>> with written_whole(target) as partial:
        ...     _ = partial.write_text("all of it")
        ...     print(target.exists())
        False
        >>> target.read_text()
        'all of it'
    """
    make_folder(path.parent)
    with (
        storing(path),
        tempfile.TemporaryDirectory(dir=path.parent, prefix=".partial-") as folder,
    ):
        yield Path(folder) / path.name
        files = list(Path(folder).iterdir())
        for file in files:
            sync(file)
        for file in files:
            file.replace(path.parent / file.name)
        sync(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace a text file once the new one is complete and on the disk.

    Raises:
        StorageError: If the disk refuses; the earlier file is as it was.
    """
    write_bytes(path, text.encode())


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, unless it is there.

    Raises:
        StorageError: If that is refused.
    """
    with storing(path):
        path.mkdir(parents=True, exist_ok=True)


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk, where the system can."""
    if os.name != "posix":
        return
    found = os.open(path, os.O_RDONLY)
    try:
        os.fsync(found)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network disks
            raise
    finally:
        os.close(found)


@contextmanager
def storing(path: Path) -> Generator[None]:
    """Say plainly what a disk refused.

    Raises:
        StorageError: In place of any other `OSError`.
    """
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        refused = StorageError(
            f"cannot write `{path}`: {error.strerror or error}. What was there before "
            "is as it was.\nMake room, or name a place that can be written."
        )
        refused.errno = error.errno
        raise refused from error


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
    belongs = {} if blueprint is None else {"blueprint": _hash(blueprint)}
    metadata = {"format": "pt", **belongs, **header}
    metadata[_DIGEST] = _digest(copies, metadata)
    try:
        return safetensors.torch.save(copies, metadata)
    except KeyError as error:
        raise ArgumentError(
            f"a safetensors file cannot hold numbers of type {error}."
        ) from error


@contextmanager
def reading(path: Path) -> Generator[None]:
    """Say plainly what file cannot be read.

    Raises:
        MissingFileError: If it is not there.
        StorageError: In place of any other `OSError`.
    """
    try:
        yield
    except StorageError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise MissingFileError(f"there is no file `{path}`.") from error
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"cannot read `{path}`: {reason}.") from error


def check_readable(path: Path) -> None:
    """Refuse a file that is not there, or that cannot be read, before it is.

    Raises:
        MissingFileError: If it is not there.
        StorageError: If it cannot be read.
    """
    with reading(path), path.open("rb"):
        pass


def read_text(path: Path) -> str:
    """Read a text file.

    Raises:
        MissingFileError: If it is not there.
        ArgumentError: If it is not text.
    """
    try:
        with reading(path):
            return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ArgumentError(f"`{path}` is damaged: {error}") from error


def read_tensors(
    path: Path, blueprint: str | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read tensors, and the header they were written with.

    Raises:
        MissingFileError: If there is no such file.
        ArgumentError: If the file is damaged, or of another blueprint.
    """
    check_readable(path)
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = dict(file.metadata() or {})
            # Copies: what is mapped into memory would change with the file.
            names = file.keys()
            tensors = {name: file.get_tensor(name).clone() for name in names}
    except Exception as error:
        raise ArgumentError(f"`{path}` is damaged: {error}") from error
    _check(path, tensors, header, blueprint)
    return tensors, header


def stored_digest(file: BinaryIO) -> str:
    """The digest that a file of `packed` carries, which tells two such files apart."""
    length = int.from_bytes(file.read(8), "little")
    return json.loads(file.read(length))["__metadata__"][_DIGEST]


def _check(
    path: Path,
    tensors: Mapping[str, Tensor],
    header: dict[str, str],
    blueprint: str | None,
) -> None:
    expected = header.pop(_DIGEST, None)
    if expected is None:
        raise ArgumentError(
            f"`{path}` carries no digest of what it holds, so damage could not be "
            "noticed: it was written by something else, or by an earlier diffprune.\n"
            "Save it again with this one."
        )
    if expected != _digest(tensors, header):
        raise ArgumentError(
            f"`{path}` is damaged: what it holds is not what was written.\nCopy it "
            "again from where it came, or save it again. Nothing was loaded."
        )
    if blueprint is not None and header.get("blueprint") != _hash(blueprint):
        raise ArgumentError(
            f"`{path}` and what is beside it, `{BLUEPRINT}` or `{WEIGHTS}`, were not "
            "saved together, or one of them is damaged.\nSave the model again, or copy "
            "the whole folder."
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


def _digest(tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> str:
    """What a file holds; the order in which it holds it is the format's own."""
    return digest([sorted(header.items()), dict(sorted(tensors.items()))])


def _hash(blueprint: str) -> str:
    return hashlib.sha256(blueprint.encode()).hexdigest()

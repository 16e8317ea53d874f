"""Verified files of a data set: where they are looked for, and kept once found.

Knows checksums and folders, not what the files mean nor how to get them.
"""

import hashlib
import os
import pickle
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Final

from diffprune.errors import DiffpruneError, MissingPackageError

DATA_VARIABLE: Final = "DIFFPRUNE_DATA"
# No answer, half an answer, half a file, another file, nothing to read it with.
_FAILURES: Final = (
    OSError, HTTPException, EOFError, zlib.error, tarfile.TarError, ValueError,
    LookupError, pickle.UnpicklingError, MissingPackageError,
)  # fmt: skip

Source = Callable[[Path], None]
"""Puts the files of a data set into a folder, or raises an error that says why."""

Conversion = Callable[[Path, Path], None]
"""From a file that people have, to the files of the data set in a folder."""


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
        conversions: What they can be made from, by the name of a file in the folder
            that a user names, or a little below.
    """

    name: str
    algorithm: str
    checksums: Mapping[str, str]
    sources: Mapping[str, Source]
    conversions: Mapping[str, Conversion] = field(default_factory=dict[str, Conversion])

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
        data_dir: Where the user says they are, or something they can be made from; by
            default what `DIFFPRUNE_DATA` says.

    Raises:
        MissingDataError: If the user's folder lacks one, or no source has them.
    """
    named = data_dir or os.environ.get(DATA_VARIABLE)
    cached = cache_folder() / files.name
    if named:
        return _find_named(files, Path(named), cached)
    if files.faults(cached) and (reasons := _fill(files, files.sources, cached)):
        tried = "\n".join(f"  {reason}" for reason in reasons)
        raise MissingDataError(
            f"{files.name} could not be fetched:\n{tried}\n{_advice(files)}"
        )
    return cached


def _find_named(files: Files, folder: Path, cached: Path) -> Path:
    """The folder that the user names, or the cache with what was made from it."""
    for candidate in (folder / files.name, folder):
        if not files.faults(candidate):
            return candidate
    known = dict(_convertible(files, folder))
    if known and not files.faults(cached):
        return cached
    reasons = _fill(files, known, cached) if known else files.faults(folder)
    if reasons:
        raise MissingDataError(f"{files.name}: {'; '.join(reasons)}.\n{_advice(files)}")
    return cached


def _convertible(files: Files, folder: Path) -> Iterator[tuple[str, Source]]:
    for name, convert in files.conversions.items():
        for below in ("", "*/", "*/*/"):
            for found in sorted(folder.glob(below + name)):
                yield f"`{found}`", partial(convert, found)


def _fill(files: Files, sources: Mapping[str, Source], cached: Path) -> list[str]:
    """Fill the cache from the first source that has all files; else say why none does.

    The cache only ever receives what was verified.
    """
    reasons = list[str]()
    cached.parent.mkdir(parents=True, exist_ok=True)
    for name, source in sources.items():
        with tempfile.TemporaryDirectory(dir=cached.parent) as temporary:
            fresh = Path(temporary)
            try:
                source(fresh)
            except _FAILURES as error:
                reasons.append(f"{name}: {error}")
                continue
            if faults := files.faults(fresh):
                made = [fault.replace(f"{fresh}{os.sep}", "") for fault in faults]
                reasons.append(f"{name}: {'; '.join(made)}")
                continue
            cached.mkdir(exist_ok=True)
            for file in files.checksums:
                (fresh / file).replace(cached / file)
            return []
    return reasons


def _advice(files: Files) -> str:
    wanted = _listed(files.checksums, "and")
    if files.conversions:
        wanted = f"{_listed(files.conversions, 'or')}, or {wanted}"
    return (
        f"Put {wanted} into a folder and name it with `--data-dir` or "
        f"`{DATA_VARIABLE}`."
    )


def _listed(names: Iterable[str], word: str) -> str:
    *others, last = (f"`{name}`" for name in names)
    return f"{', '.join(others)} {word} {last}" if others else last

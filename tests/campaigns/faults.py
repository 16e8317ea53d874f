"""A disk that refuses at the n-th thing it is asked to do.

Everything by which files are made, written, brought to the disk and renamed goes
through functions of `os` and `io`; each is counted, and one of them fails.
"""

import builtins
import errno
import io
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from unittest import mock

import torch

import diffprune as dp
from diffprune import lab
from diffprune.errors import DiffpruneError
from tests.campaigns.damage import FORMATS
from tests.campaigns.doors import recipe, task
from tests.campaigns.scenes import INPUTS, net

ERRORS = (errno.ENOSPC, errno.EROFS, errno.EIO)


class _Writing:
    """A file whose every write is asked for."""

    def __init__(self, disk: "Disk", file: Any) -> None:
        self._disk, self._file = disk, file

    def write(self, data: Any) -> int:
        self._disk.asked()
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> Self:
        self._file.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._file.__exit__(*error)


class Disk:
    """Counts what it is asked for; fails at one of them."""

    def __init__(self, folder: Path, fails_at: int = -1, code: int = errno.EIO) -> None:
        self.folder, self.fails_at, self.code, self.count = folder, fails_at, code, 0

    def asked(self) -> None:
        self.count += 1
        if self.count - 1 == self.fails_at:
            raise OSError(self.code, os.strerror(self.code))

    def _is_here(self, place: object) -> bool:
        return isinstance(place, str | Path) and str(place).startswith(str(self.folder))

    def _around(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def checked(place: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_here(place):
                self.asked()
            return real(place, *args, **kwargs)

        return checked

    def _made(self, real: Callable[..., int]) -> Callable[..., int]:
        def opened(place: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if flags & (os.O_WRONLY | os.O_RDWR) and self._is_here(place):
                self.asked()
            return real(place, flags, *args, **kwargs)

        return opened

    def _opened(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def opened(place: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            writes = any(letter in mode for letter in "wax+")
            if not writes or not (isinstance(place, int) or self._is_here(place)):
                return real(place, mode, *args, **kwargs)
            if not isinstance(place, int):
                self.asked()
            return _Writing(self, real(place, mode, *args, **kwargs))

        return opened

    @contextmanager
    def __call__(self) -> Generator["Disk"]:
        """Stand in for the real one."""
        with (
            mock.patch.object(os, "open", self._made(os.open)),
            mock.patch.object(os, "mkdir", self._around(os.mkdir)),
            mock.patch.object(os, "replace", self._around(os.replace)),
            mock.patch.object(os, "rename", self._around(os.rename)),
            mock.patch.object(os, "fsync", self._flushed(os.fsync)),
            mock.patch.object(builtins, "open", self._opened(builtins.open)),
            mock.patch.object(io, "open", self._opened(io.open)),
        ):
            yield self

    def _flushed(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def fsync(descriptor: int) -> None:
            self.asked()
            real(descriptor)

        return fsync


@dataclass(frozen=True)
class Save:
    """Something that is written over an earlier one of its kind.

    Attributes:
        prepare: Writes the earlier one.
        again: Writes the other one; called anew after every failure.
        read: What is there now.
    """

    prepare: Callable[[Path], Any]
    again: Callable[[Path], Any]
    read: Callable[[Path], Any]


def _read(name):
    form = FORMATS[name]
    return lambda folder: form.load(folder, *form.target())


def _of(name):
    form = FORMATS[name]
    return Save(
        lambda folder: form.write(folder, 0),
        lambda folder: form.write(folder, 1),
        _read(name),
    )


def _export(folder):
    dp.to_exported_program(net(), INPUTS, folder / "it.pt2")


def _exported(folder):
    return torch.export.load(folder / "it.pt2").module()(INPUTS)


def _train(folder):
    if (folder / "run" / "summary.json").exists():
        return  # the disk failed only once all was written
    lab.train(task, recipe(strength=1e-3), out=folder / "run")


def _run(folder):
    return dp.load_pruned(task().model, folder / "run").state_dict()


SAVES = {
    "save_pruned": _of("optimizer"),
    "save_checkpoint": _of("checkpoint"),
    "save_sparse": _of("sparse"),
    "to_exported_program": Save(_export, _export, _exported),
    "train": Save(lambda _: None, _train, _run),
}


def strike(name: str, folder: Path, number: int, code: int) -> tuple[str, bool]:
    """Let the disk fail at its n-th duty: what came of it, and whether it got there."""
    save = SAVES[name]
    folder.mkdir()
    save.prepare(folder)
    before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    disk = Disk(folder, number, code)
    try:
        with disk():
            save.again(folder)
    except DiffpruneError as error:
        return _after(save, folder, before, str(error)), True
    except Exception as error:  # noqa: BLE001 - which is what we are looking for
        return f"inner {type(error).__name__}: {error}", True
    return "written", disk.count > number


def _after(save: Save, folder: Path, before: dict[Path, bytes], said: str) -> str:
    if str(folder) not in said:
        return f"nameless: {said}"
    if left := [p.name for p in folder.rglob("*partial*")]:
        return f"left {left}"
    now = {p: p.read_bytes() for p in before if p.exists()}
    is_as_before = now == before
    if not is_as_before:
        try:
            save.read(folder)
        except DiffpruneError:
            pass  # a folder of old and new files, which is noticed
        except Exception as error:  # noqa: BLE001 - as above
            return f"left a mixture that raises {type(error).__name__}: {error}"
    save.again(folder)
    save.read(folder)
    return "refused"

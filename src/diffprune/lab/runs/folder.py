"""Write a run folder: complete after every epoch, continued after a stop."""

import contextlib
import datetime as dt
import json
import os
import platform
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import torch
from filelock import FileLock, Timeout
from torch import nn
from torch.optim import Optimizer

from diffprune import __version__
from diffprune._core.files import write_text
from diffprune._io import save_pruned
from diffprune._io.checkpoint import load_checkpoint, save_checkpoint
from diffprune._pruner import RemovalRecord
from diffprune.errors import ArgumentError, StorageError
from diffprune.lab.runs import records
from diffprune.lab.runs.import_spec import check_is_not_read
from diffprune.lab.runs.records import Epoch, Outcome, Run, read_lines, read_run
from diffprune.lab.training.no_pruning import Trainable
from diffprune.lab.training.recipe import Recipe


@final
@dataclass(frozen=True)
class Folder:
    """One run on disk.

    Attributes:
        path: Where it is.
    """

    path: Path

    @classmethod
    @contextlib.contextmanager
    def open(
        cls, path: Path, recipe: Recipe, task: str | None = None
    ) -> Generator["Folder", None, None]:
        """Start a run, or return to one of the same recipe that was stopped.

        Args:
            path: Where it is.
            recipe: Of the run.
            task: How to find its task again, if there is a way.

        Raises:
            ArgumentError: If the folder holds another run or a finished one, or another
                process is writing into it.
            StorageError: If it cannot be written.
        """
        check_is_not_read()
        with _said_plainly(path):
            path.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            with _said_plainly(path):
                if has_begun(path):
                    _check_unfinished(path, recipe, task)
                else:
                    _write_json(path / records.TASK, {"task": task})
                    _write_json(path / records.RECIPE, recipe.to_dict())
                    _write_json(path / records.ENVIRONMENT, _environment())
            yield cls(path)

    @property
    def checkpoint(self) -> Path:
        """Where a stopped run continues from."""
        return self.path / records.CHECKPOINT

    def save(
        self, pruner: Trainable, optimizer: Optimizer, progress: Mapping[str, Any]
    ) -> None:
        """Write a checkpoint over the last one."""
        with _said_plainly(self.path):
            save_checkpoint(self.checkpoint, pruner, optimizer, extra=progress)

    def load(self, pruner: Trainable, optimizer: Optimizer) -> dict[str, Any] | None:
        """Continue from the checkpoint, if there is one; return what came with it."""
        if not self.checkpoint.exists():
            return None
        return load_checkpoint(self.checkpoint, pruner, optimizer)

    def write_epoch(self, epoch: Epoch, removals: Iterable[RemovalRecord]) -> None:
        """Add an epoch; later ones, of a run that was cut short, are dropped."""
        path = self.path / records.METRICS
        earlier = [line for line in read_lines(path) if line["number"] < epoch.number]
        with _said_plainly(self.path):
            _write_lines(path, [*earlier, epoch.to_dict()])
            self._write_removals(removals)

    def finish(self, model: nn.Module, pruner: Trainable, outcome: Outcome) -> None:
        """Write what is left of the model; the checkpoint is of no more use."""
        with _said_plainly(self.path):
            self._write_removals(pruner.history)
            write_text(self.path / records.PLAN, pruner.plan.to_json())
            save_pruned(model, self.path)
            _write_json(self.path / records.SUMMARY, outcome.to_dict())
            self.checkpoint.unlink(missing_ok=True)

    def _write_removals(self, removals: Iterable[RemovalRecord]) -> None:
        lines = [removal.to_dict() for removal in removals]
        _write_lines(self.path / records.REMOVALS, lines)


def check_holds_no_run(path: Path) -> None:
    """Refuse a folder that something else than its run is about to be written into.

    Raises:
        ArgumentError: If there is a run, whose network would be lost.
    """
    if (path / records.RECIPE).exists():
        raise ArgumentError(
            f"`{path}` holds a run, and its network would be overwritten.\n"
            "Name another directory with `--out`."
        )


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None, None, None]:
    """Keep other writers out; the lock ends with the process, however that ends."""
    lock = FileLock(path / records.LOCK, timeout=0)
    try:
        with _said_plainly(path):
            lock.acquire()
    except Timeout as error:
        raise ArgumentError(
            f"another process is writing into `{path}`.\nWait until it has finished, "
            "or name another directory with `--out`."
        ) from error
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _said_plainly(path: Path) -> Generator[None, None, None]:
    """Say what the disk refused; files are replaced whole, so earlier ones stay."""
    try:
        yield
    except Timeout:
        raise
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise StorageError(
            f"cannot write into `{path}`: {reason}.\n"
            "Name another directory with `--out`, for instance `--out runs/mine`; or "
            "make room, and the same command continues."
        ) from error


def has_begun(path: Path) -> bool:
    """Whether there is more than the intention: a run that failed at once is none."""
    files = (records.METRICS, records.CHECKPOINT, records.SUMMARY)
    return any((path / name).exists() for name in files)


def _run_to_continue(path: Path) -> Run:
    """What is there, before anything is written over it."""
    try:
        return read_run(path)
    except ArgumentError as error:
        raise ArgumentError(
            f"{error}\nA part of a run is there, which cannot continue and is not "
            "written over. Name another directory with `--out`, or delete this one."
        ) from error


def check_same(run: Run, recipe: Recipe, task: str | None) -> None:
    """Refuse to take a run for one of another recipe or task.

    Args:
        run: What is there.
        recipe: What is asked for.
        task: Where the task is that is asked for, seen from the folder of the run. One
            that has moved is the same.

    Raises:
        ArgumentError: If it is another run.
    """
    old, new = (_file_of(run.folder, spec) for spec in (run.task, task))
    if old and new and old != new and old[0].is_file():
        raise ArgumentError(
            f"`{run.folder}` holds a run of `{old[0]}:{old[1]}`, not of "
            f"`{new[0]}:{new[1]}`.\n"
            "Name another directory with `--out`, or delete this one."
        )
    there = run.recipe.to_dict()
    asked = Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))).to_dict()
    differences = [
        f"{name} {there[name]!r}, not {asked[name]!r}"
        for name in asked
        if there[name] != asked[name]
    ]
    if differences:
        raise ArgumentError(
            f"`{run.folder}` holds a run with {'; '.join(differences)}.\n"
            "Name another directory with `--out`, or delete this one."
        )


def _file_of(folder: Path, task: str | None) -> tuple[Path, str] | None:
    """The file that a task is written in, and its function; None if it is no file."""
    place, _, function = (task or "").rpartition(":")
    is_file = place.endswith(".py")
    return ((folder / place).resolve(), function) if is_file else None


def _check_unfinished(path: Path, recipe: Recipe, task: str | None) -> None:
    check_same(_run_to_continue(path), recipe, task)
    if (path / records.SUMMARY).exists():
        raise ArgumentError(
            f"`{path}` holds this very run, finished; there is nothing left to train.\n"
            "Name another directory with `--out`, or delete this one."
        )


def _environment() -> dict[str, Any]:
    return {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "python": platform.python_version(),
        "diffprune": __version__,
        "torch": torch.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "accelerators": [
            torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())
        ],
    }


def _write_json(path: Path, data: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(data, indent=2) + "\n")


def _write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(line) + "\n" for line in lines))

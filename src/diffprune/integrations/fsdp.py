"""Checkpoints of models that `fully_shard` divides: every process writes its part.

They are read by any number of processes. The tensors are those of
`torch.distributed.checkpoint`; what was removed is in a file beside them.
"""

import io
import os
import shutil
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
import xxhash
from torch import distributed
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.optim import Optimizer

from diffprune._core.digest import digest
from diffprune._core.door import door
from diffprune._core.files import (
    check_readable,
    reading,
    storing,
    sync,
    write_bytes,
)
from diffprune._pruner import Pruner
from diffprune._surgery.optimizer_state import check_trains
from diffprune.errors import ArgumentError, ProcessError, StorageError

_VERSION: Final = 2
_STATE: Final = "pruner.pt"
_TENSORS: Final = "tensors"
_PIECE: Final = 1 << 22


@door
def save_checkpoint(
    folder: str | os.PathLike[str],
    pruner: Pruner[Any],
    optimizer: Optimizer,
    *,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write everything a run needs to continue; to be called by all processes.

    Args:
        folder: Replaced only once the new one is complete.
        pruner: The pruner, with its model.
        optimizer: The optimizer.
        extra: More numbers and plain state: a scheduler's, the epoch.

    Raises:
        ArgumentError: If something cannot be loaded again without running code, or the
            optimizer is that of another model.
        StorageError: If the disk refuses, or something else is in the folder; what was
            there is as it was.
        ProcessError: In other processes, if the first one fails.
    """
    whole, part = Path(folder), Path(f"{folder}.part")
    check_trains(optimizer, pruner.model)
    _by_the_first(lambda: _prepare(whole, part))
    model_state, optimizer_state = get_state_dict(pruner.model, optimizer)
    state = {"pruner": pruner.state_dict(), "extra": dict(extra or {})}
    tensors = {"model": model_state, "optimizer": optimizer_state}
    with _one_is_enough(), storing(whole):
        save(tensors, checkpoint_id=part / _TENSORS)
    _by_the_first(lambda: _finish(whole, part, state))


def _prepare(whole: Path, part: Path) -> None:
    """Make room for a new folder; refuse to put it in the place of something else."""
    with storing(whole):
        is_other = whole.exists() and not (whole / _STATE).is_file()
        if is_other and not (whole.is_dir() and not any(whole.iterdir())):
            raise StorageError(
                f"`{whole}` holds something else than a checkpoint, and is left as it "
                "is.\nName a folder that is new, empty, or an earlier checkpoint."
            )
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)


def _finish(whole: Path, part: Path, parts: Mapping[str, Any]) -> None:
    """Note what the files hold, and give the new folder its name."""
    state = {"version": _VERSION, "files": _digests(part / _TENSORS), **parts}
    buffer = io.BytesIO()
    torch.save({**state, "digest": digest(state)}, buffer)
    write_bytes(part / _STATE, buffer.getbuffer())
    with storing(whole):
        old = Path(f"{whole}.old")
        shutil.rmtree(old, ignore_errors=True)
        if whole.exists():
            whole.rename(old)
        part.rename(whole)
        sync(whole.parent)
        shutil.rmtree(old, ignore_errors=True)


def _digests(folder: Path) -> dict[str, str]:
    """Of every file in a folder."""
    return {path.name: _digest(path) for path in sorted(folder.iterdir())}


def _digest(path: Path) -> str:
    found = xxhash.xxh3_128()
    with reading(path), path.open("rb", buffering=0) as file:
        while piece := file.read(_PIECE):
            found.update(piece)
    return found.hexdigest()


@door
def load_checkpoint(
    folder: str | os.PathLike[str], pruner: Pruner[Any], optimizer: Optimizer
) -> dict[str, Any]:
    """Continue a run, with as many processes as there are now; all call it.

    Args:
        folder: What `save_checkpoint` wrote.
        pruner: A new pruner of a fresh model, made with the same arguments; divided by
            `pruner.shard_`, or not.
        optimizer: A new optimizer, made from `pruner.parameter_groups(...)` after that.

    Returns:
        What was given as `extra`.

    Raises:
        MissingFileError: If the folder holds no checkpoint.
        ArgumentError: If a file in it is damaged, or it is of another model or
            optimizer; of those that are damaged nothing is loaded.
    """
    check_trains(optimizer, pruner.model)
    state = _read(Path(folder) / _STATE)
    _by_the_first(lambda: _check_files(Path(folder), state["files"]))
    pruner.load_state_dict(state["pruner"], optimizer)
    model_state, optimizer_state = get_state_dict(pruner.model, optimizer)
    tensors = {"model": model_state, "optimizer": optimizer_state}
    with _one_is_enough():
        load(tensors, checkpoint_id=Path(folder) / _TENSORS)
    set_state_dict(
        pruner.model,
        optimizer,
        model_state_dict=model_state,
        optim_state_dict=optimizer_state,
    )
    return state["extra"]


def _read(path: Path) -> dict[str, Any]:
    check_readable(path)
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
        found = state.pop("digest")
        is_whole = found == digest(state) and state["version"] == _VERSION
    except Exception as error:
        raise ArgumentError(f"`{path}` is damaged: {error}") from error
    if not is_whole:
        raise ArgumentError(
            f"`{path}` is damaged, or of another version: what it holds is not what "
            "was written.\nContinue from an earlier checkpoint. Nothing was loaded."
        )
    return state


def _check_files(folder: Path, expected: Mapping[str, str]) -> None:
    for name, found in expected.items():
        path = folder / _TENSORS / Path(name).name
        if _digest(path) != found:
            raise ArgumentError(
                f"`{path}` is damaged: what it holds is not what was written.\n"
                "Continue from an earlier checkpoint. Nothing was loaded."
            )


@contextmanager
def _one_is_enough() -> Generator[None]:
    """Let torch not warn that there are no other processes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield


def _by_the_first(action: Callable[[], None]) -> None:
    """Let the first process do something; what fails there fails in all of them.

    Raises:
        ProcessError: In the others, if it fails in the first.
    """
    is_alone = not distributed.is_initialized()
    failure: list[str | None] = [None]
    if is_alone:
        action()
    elif distributed.get_rank() == 0:
        try:
            action()
        except BaseException as error:
            distributed.broadcast_object_list([f"{type(error).__name__}: {error}"])
            raise
        distributed.broadcast_object_list(failure)
    else:
        distributed.broadcast_object_list(failure)
        if failure[0] is not None:
            raise ProcessError(f"process 0 failed: {failure[0]}")

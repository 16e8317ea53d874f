"""Checkpoints of models that `fully_shard` divides: every process writes its part.

They are read by any number of processes. The tensors are those of
`torch.distributed.checkpoint`; what was removed is in a file beside them.
"""

import io
import os
import shutil
import warnings
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch import distributed
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.optim import Optimizer

from diffprune._core.digest import digest
from diffprune._core.door import door
from diffprune._core.files import write_bytes
from diffprune._pruner import Pruner
from diffprune.errors import ArgumentError

_VERSION: Final = 1
_STATE: Final = "pruner.pt"
_TENSORS: Final = "tensors"


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
        ArgumentError: If something cannot be loaded again without running code.
        StorageError: If the disk refuses; the earlier folder is as it was.
    """
    whole, part = Path(folder), Path(f"{folder}.part")
    model_state, optimizer_state = get_state_dict(pruner.model, optimizer)
    if _is_first():
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        state = {
            "version": _VERSION,
            "pruner": pruner.state_dict(),
            "extra": dict(extra or {}),
        }
        buffer = io.BytesIO()
        torch.save({**state, "digest": digest(state)}, buffer)
        write_bytes(part / _STATE, buffer.getbuffer())
    _wait()
    tensors = {"model": model_state, "optimizer": optimizer_state}
    with _one_is_enough():
        save(tensors, checkpoint_id=part / _TENSORS)
    _wait()
    if _is_first():
        old = Path(f"{folder}.old")
        shutil.rmtree(old, ignore_errors=True)
        if whole.exists():
            whole.rename(old)
        part.rename(whole)
        shutil.rmtree(old, ignore_errors=True)
    _wait()


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
        ArgumentError: If the folder is damaged, or of another model.
    """
    state = _read(Path(folder) / _STATE)
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
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
        found = state.pop("digest")
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ArgumentError(f"`{path}` is damaged: {error}") from error
    if found != digest(state) or state["version"] != _VERSION:
        raise ArgumentError(
            f"`{path}` is damaged, or of another version: what it holds is not what "
            "was written.\nContinue from an earlier checkpoint. Nothing was loaded."
        )
    return state


@contextmanager
def _one_is_enough() -> Generator[None]:
    """Let torch not warn that there are no other processes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield


def _is_first() -> bool:
    return not distributed.is_initialized() or distributed.get_rank() == 0


def _wait() -> None:
    if distributed.is_initialized():
        distributed.barrier()

"""Save a training run whose shapes change, and continue it in a fresh model.

Knows pruners and optimizers through their state dicts only.
"""

import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch.optim import Optimizer

from diffprune.errors import ArgumentError
from diffprune.pruner import Pruner

VERSION: Final = 1


def save_checkpoint(
    path: str | os.PathLike[str],
    pruner: Pruner[Any],
    optimizer: Optimizer,
    *,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write everything a run needs to continue, in one file, all or nothing.

    Args:
        path: Replaced only once the new file is complete.
        pruner: The pruner, with its model.
        optimizer: The optimizer.
        extra: More state dicts and numbers: a scheduler's, the epoch.
    """
    target = Path(path)
    partial = target.with_name(f"{target.name}.partial")
    state = {
        "version": VERSION,
        "pruner": pruner.state_dict(),
        "model": pruner.model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": {"torch": torch.get_rng_state(), "python": random.getstate()},
        "extra": dict(extra or {}),
    }
    torch.save(state, partial)
    partial.replace(target)


def load_checkpoint(
    path: str | os.PathLike[str], pruner: Pruner[Any], optimizer: Optimizer
) -> dict[str, Any]:
    """Continue a run: cut the fresh model to its shapes and load every state.

    Args:
        path: What `save_checkpoint` wrote.
        pruner: A new pruner of a fresh model, made with the same arguments.
        optimizer: A new optimizer made from `pruner.parameter_groups(...)`.

    Returns:
        What was given as `extra`.

    Raises:
        ArgumentError: If the file is damaged, of a later version, or of another model.
    """
    try:
        state = torch.load(path, weights_only=True)
        version = state["version"]
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ArgumentError(f"`{path}` is not a diffprune checkpoint: {error}") from error
    if version != VERSION:
        raise ArgumentError(
            f"`{path}` has version {version}, this diffprune reads version {VERSION}."
        )
    pruner.load_state_dict(state["pruner"], optimizer)
    pruner.model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"]["torch"])
    kind, words, gauss = state["random"]["python"]
    random.setstate((kind, tuple(words), gauss))
    return state["extra"]

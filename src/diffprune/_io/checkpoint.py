"""Save a training run whose shapes change, and continue it in a fresh model.

Knows pruners and optimizers through their state dicts only.
"""

import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from torch import nn
from torch.optim import Optimizer

from diffprune._core.files import written_whole
from diffprune._surgery.plan import Plan
from diffprune.errors import ArgumentError
from diffprune.gates.penalty import named_gates

VERSION: Final = 1
PARTS: Final = {"version", "pruner", "model", "optimizer", "random", "extra"}


class HasState(Protocol):
    """What a checkpoint saves beside the optimizer: a `Pruner`, as a rule."""

    @property
    def model(self) -> nn.Module:
        """The model, gates included."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What is not in the model's own state."""
        ...

    def load_state_dict(self, state: Mapping[str, Any], *optimizers: Optimizer) -> None:
        """Cut a fresh model, and optimizers for it, to the shapes of a run."""
        ...


def save_checkpoint(
    path: str | os.PathLike[str],
    pruner: HasState,
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
    state = {
        "version": VERSION,
        "pruner": pruner.state_dict(),
        "model": pruner.model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": {"torch": torch.get_rng_state(), "python": random.getstate()},
        "extra": dict(extra or {}),
    }
    with written_whole(Path(path)) as partial:
        torch.save(state, partial)


def load_checkpoint(
    path: str | os.PathLike[str], pruner: HasState, optimizer: Optimizer
) -> dict[str, Any]:
    """Continue a run: cut the fresh model to its shapes and load every state.

    Args:
        path: What `save_checkpoint` wrote.
        pruner: A new pruner of a fresh model, made with the same arguments.
        optimizer: A new optimizer made from `pruner.parameter_groups(...)`.

    Returns:
        What was given as `extra`.

    Raises:
        ArgumentError: If the file is damaged, of another version, or of another model;
            nothing has changed.
    """
    state = _read(path)
    _check_optimizer(path, state["optimizer"], optimizer)
    _check_model(path, state, pruner)
    pruner.load_state_dict(state["pruner"], optimizer)
    pruner.model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"]["torch"])
    kind, words, gauss = state["random"]["python"]
    random.setstate((kind, tuple(words), gauss))
    return state["extra"]


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
        missing = PARTS - set(state)
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ArgumentError(
            f"`{path}` is damaged, or not a diffprune checkpoint: {error}"
        ) from error
    if missing:
        raise ArgumentError(
            f"`{path}` is not a diffprune checkpoint: it lacks {sorted(missing)}."
        )
    if state["version"] != VERSION:
        raise ArgumentError(
            f"`{path}` has version {state['version']}, this diffprune reads version "
            f"{VERSION}."
        )
    return state


def _check_optimizer(
    path: str | os.PathLike[str], saved: Mapping[str, Any], optimizer: Optimizer
) -> None:
    expected = [len(group["params"]) for group in optimizer.param_groups]
    found = [len(group["params"]) for group in saved.get("param_groups", ())]
    if found != expected:
        raise ArgumentError(
            f"the optimizer in `{path}` has groups of {found} parameters, this one of "
            f"{expected}.\nMake it as in the saved run: "
            "`pruner.parameter_groups(...)`."
        )


def _check_model(
    path: str | os.PathLike[str], state: Mapping[str, Any], pruner: HasState
) -> None:
    """Compare shapes before anything is cut; gates are the pruner's to check."""
    plan, saved = Plan.from_json(state["pruner"]["plan"]), state["model"]
    gates = tuple(f"{name}." for name in named_gates(pruner.model))
    for name, tensor in pruner.model.state_dict().items():
        kept = plan.tensors.get(name, {})
        expected = [len(kept.get(dim, range(n))) for dim, n in enumerate(tensor.shape)]
        found = list(saved[name].shape) if name in saved else "nothing"
        if found != expected and not name.startswith(gates):
            raise ArgumentError(
                f"`{path}` is of another model: for `{name}` it holds {found}, and "
                f"{expected} is needed."
            )

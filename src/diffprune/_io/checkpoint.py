"""Save a training run whose shapes change, and continue it in a fresh model.

Knows pruners and optimizers through their state dicts only.
"""

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from diffprune._core.digest import digest
from diffprune._core.door import door
from diffprune._core.files import check_readable, write_bytes
from diffprune._core.randomness import random_states, set_random_states
from diffprune._core.snapshot import all_or_nothing
from diffprune._io.optimizer_fit import fitted
from diffprune._surgery.apply import named_tensors
from diffprune._surgery.optimizer_state import check_trains
from diffprune._surgery.plan import Plan
from diffprune.errors import ArgumentError, DiffpruneError
from diffprune.gates.penalty import named_gates

VERSION: Final = 2
PARTS: Final = {
    "version", "digest", "pruner", "model", "optimizer", "random", "extra"
}  # fmt: skip


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


@door
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

    Raises:
        ArgumentError: If something cannot be loaded again without running code: only
            tensors, numbers, text, and dicts, lists, tuples and sets of them can.
        StorageError: If the disk refuses; the earlier file is as it was.
    """
    check_trains(optimizer, pruner.model)
    parts = {
        "version": VERSION,
        "pruner": pruner.state_dict(),
        "model": pruner.model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": random_states(),
        "extra": dict(extra or {}),
    }
    buffer = io.BytesIO()
    torch.save({**parts, "digest": _digests(parts)}, buffer)
    write_bytes(Path(path), buffer.getbuffer())


@door
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
        MissingFileError: If there is no such file.
        ArgumentError: If the file is damaged, of another version, or of another model;
            nothing has changed.
    """
    state = _read(path)
    try:
        _check_model(path, state, pruner)
        tensors = named_tensors(pruner.model).values()
        with all_or_nothing(pruner, optimizer, overwritten=tensors):
            pruner.load_state_dict(state["pruner"], optimizer)
            # Only now: gates that are folded away have left the optimizer.
            like = _parameters(optimizer, state, pruner)
            saved = fitted(optimizer, state["optimizer"], like)
            pruner.model.load_state_dict(state["model"])
            optimizer.load_state_dict(saved)
            set_random_states(state["random"])
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        if isinstance(error, DiffpruneError) and f"`{path}`" in str(error):
            raise
        raise ArgumentError(f"`{path}` cannot be loaded: {error}") from error
    return state["extra"]


def _digests(parts: Mapping[str, Any]) -> dict[str, str]:
    return {name: digest(part, name) for name, part in sorted(parts.items())}


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    check_readable(Path(path))
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
        missing = PARTS - set(state)
    except Exception as error:
        raise ArgumentError(
            f"`{path}` is damaged, or not a diffprune checkpoint: {error}"
        ) from error
    if "version" in state and state["version"] != VERSION:
        raise ArgumentError(
            f"`{path}` has version {state['version']}, this diffprune reads version "
            f"{VERSION}."
        )
    if missing:
        raise ArgumentError(
            f"`{path}` is not a diffprune checkpoint: it lacks {sorted(missing)}."
        )
    parts = {name: state[name] for name in PARTS - {"digest"}}
    if state["digest"] != _digests(parts):
        raise ArgumentError(
            f"`{path}` is damaged: what it holds is not what was written.\nCopy it "
            "again from where it came, or continue from an earlier one. Nothing was "
            "loaded."
        )
    return state


def _parameters(
    optimizer: Optimizer, state: Mapping[str, Any], pruner: HasState
) -> list[tuple[str, Tensor]]:
    """What each parameter of the optimizer is called, and will be like."""
    names = {p: name for name, p in pruner.model.named_parameters()}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    return [(names.get(p, "?"), state["model"].get(names.get(p), p)) for p in held]


def _check_model(
    path: str | os.PathLike[str], state: Mapping[str, Any], pruner: HasState
) -> None:
    """Compare shapes before anything is cut; gates are the pruner's to check."""
    plan, saved = Plan.from_json(state["pruner"]["plan"]), state["model"]
    gates = tuple(f"{name}." for name in named_gates(pruner.model))
    unknown = saved.keys() - pruner.model.state_dict().keys()
    if extra := sorted(name for name in unknown if not name.startswith(gates)):
        raise ArgumentError(
            f"`{path}` is of another model: it holds `{extra[0]}`, and the model does "
            "not."
        )
    for name, tensor in pruner.model.state_dict().items():
        kept = plan.tensors.get(name, {})
        expected = [len(kept.get(dim, range(n))) for dim, n in enumerate(tensor.shape)]
        found = list(saved[name].shape) if name in saved else "nothing"
        if found != expected and not name.startswith(gates):
            raise ArgumentError(
                f"`{path}` is of another model: for `{name}` it holds {found}, and "
                f"{expected} is needed."
            )

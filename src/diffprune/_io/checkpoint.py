"""Save a training run whose shapes change, and continue it in a fresh model.

Knows pruners and optimizers through their state dicts only. The file is in the
safetensors format: tensors by number, and in the header, as JSON, what they belong to.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol

from torch import Tensor, nn
from torch.optim import Optimizer

from diffprune._core.door import door
from diffprune._core.files import reading, write_bytes
from diffprune._core.lending import Lend, borrowers, load_lent_
from diffprune._core.modules import GATES, named_tensors
from diffprune._core.nested import put_together, take_apart
from diffprune._core.randomness import random_states, set_random_states
from diffprune._core.snapshot import all_or_nothing
from diffprune._core.tensor_files import copied, map_tensors, packed
from diffprune._io.compatibility import are_alike
from diffprune._io.optimizer_fit import fitted
from diffprune._surgery.optimizer_state import check_trains
from diffprune._surgery.plan import Plan
from diffprune.errors import ArgumentError, DiffpruneError
from diffprune.gates.penalty import gate_paths

FORMAT: Final = "diffprune-checkpoint"
VERSION: Final = 3
PARTS: Final = {"pruner", "model", "optimizer", "random", "extra"}
_OF_TORCH: Final = b"PK"
"""How files of `torch.save` begin; checkpoints up to version 2 were such files."""


class HasState(Protocol):
    """What is saved with a model: a `Pruner`, as a rule."""

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
        path: The file. An earlier one is replaced only once the new one is complete.
        pruner: The pruner, with its model.
        optimizer: The optimizer.
        extra: More state dicts and numbers, such as that of a scheduler, or the epoch.

    Raises:
        ArgumentError: If something cannot be loaded again without running code: only
            tensors, numbers, text, and dicts, lists, tuples and sets of them can.
        StorageError: If the file cannot be written; the earlier one is as it was.
    """
    check_trains(optimizer, pruner.model)
    parts = {
        "pruner": pruner.state_dict(),
        "model": pruner.model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": random_states(),
        "extra": dict(extra or {}),
    }
    write_bytes(Path(path), _packed(parts))


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
        with _whole(state, pruner, optimizer) as lend_:
            pruner.load_state_dict(state["pruner"], optimizer)
            # Only now: gates that are folded away have left the optimizer.
            like = _parameters(optimizer, state, pruner)
            saved = fitted(optimizer, state["optimizer"], like)
            lent = _borrowers(state, pruner)
            lend_(lent)
            load_lent_(pruner.model, state["model"], lent)
            optimizer.load_state_dict(saved)
            set_random_states(state["random"])
    except (LookupError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        if isinstance(error, DiffpruneError) and f"`{path}`" in str(error):
            raise
        raise ArgumentError(f"`{path}` cannot be loaded: {error}") from error
    return state["extra"]


def _packed(parts: Mapping[str, Any], version: int = VERSION) -> bytes:
    """A file of these parts; memory that several tensors share is stored once."""
    apart = {name: take_apart(part, name) for name, part in sorted(parts.items())}
    tensors = dict[str, Tensor]()
    numbers = dict[tuple[object, ...], int]()
    trees = dict[str, Any]()
    for name, (tree, found) in apart.items():
        held = [numbers.setdefault(_memory(t), len(numbers)) for t in found]
        tensors |= {str(n): t for n, t in zip(held, found, strict=True)}
        trees[name] = {"values": tree, "tensors": held}
    header = {"format": FORMAT, "version": str(version), "state": json.dumps(trees)}
    return packed(tensors, None, **header)


def _memory(tensor: Tensor) -> tuple[object, ...]:
    """What two tensors have in common only if they are the same numbers in memory."""
    if tensor.numel() == 0:
        return tensor.dtype, tensor.shape
    return tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _read(path: str | os.PathLike[str]) -> dict[str, Any]:
    with reading(Path(path)), Path(path).open("rb") as file:
        is_of_torch = file.read(len(_OF_TORCH)) == _OF_TORCH
    if is_of_torch:
        raise ArgumentError(
            f"`{path}` is a file of `torch.save`: damaged, or not a diffprune "
            f"checkpoint of version {VERSION}, which this diffprune reads. Up to "
            "version 2 checkpoints were such files.\nContinue it with the diffprune "
            "that wrote it."
        )
    tensors, header = map_tensors(Path(path))
    if header.get("format") != FORMAT:
        raise ArgumentError(f"`{path}` is not a diffprune checkpoint.")
    if header.get("version") != str(VERSION):
        raise ArgumentError(
            f"`{path}` has version {header.get('version')}, this diffprune reads "
            f"version {VERSION}."
        )
    try:
        trees = json.loads(header["state"])
        state = {name: _together(tree, tensors, name) for name, tree in trees.items()}
        missing = PARTS - {n for n, part in state.items() if isinstance(part, dict)}
    except Exception as error:
        raise ArgumentError(f"`{path}` is damaged: {error!r}") from error
    if missing:
        raise ArgumentError(
            f"`{path}` is not a diffprune checkpoint: it lacks {sorted(missing)}."
        )
    return state


def _together(tree: Mapping[str, Any], tensors: Mapping[str, Tensor], part: str) -> Any:  # noqa: ANN401 - of any kind
    """One part; only what is loaded into the model's own memory is not copied here."""
    found = [tensors[str(number)] for number in tree["tensors"]]
    own = found if part == "model" else map(copied, found)
    return put_together(tree["values"], list(own))


def _whole(
    state: Mapping[str, Any], pruner: HasState, optimizer: Optimizer
) -> AbstractContextManager[Lend]:
    """Leave everything as it was if loading fails.

    Gates are overwritten in place, and so is everything if units leave or gates are
    folded away. Otherwise tensors can have the memory of the file until all is well.
    """
    tensors = named_tensors(pruner.model)
    lent = {} if _changes_units(state, pruner) else _borrowers(state, pruner)
    overwritten = [t for t in tensors.values() if t not in lent]
    return all_or_nothing(pruner, optimizer, overwritten=overwritten)


def _changes_units(state: Mapping[str, Any], pruner: HasState) -> bool:
    """Whether loading cuts the model, brings units back, or takes its gates out."""
    is_other = pruner.state_dict()["plan"] != state["pruner"]["plan"]
    return is_other or _shapes(state["model"]) != _shapes(pruner.model.state_dict())


def _shapes(state: Mapping[str, Any]) -> dict[str, list[int]]:
    """Of tensors; what modules keep beside them has none."""
    return {n: list(t.shape) for n, t in state.items() if isinstance(t, Tensor)}


def _borrowers(state: Mapping[str, Any], pruner: HasState) -> dict[Tensor, Tensor]:
    """Which tensors of the model can have the memory of what was read; no gates."""
    is_of_gate, tensors = _of_gates(pruner.model), named_tensors(pruner.model)
    plain = {n: t for n, t in tensors.items() if not is_of_gate(n)}
    return borrowers(plain, state["model"])


def _of_gates(model: nn.Module) -> Callable[[str], bool]:
    """Tells names of gates, also of those that the model has no more, from others."""
    gates = tuple(f"{name}." for name in gate_paths(model))
    return lambda name: name.startswith(gates) or GATES in name.split(".")


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
    """Compare shapes before anything is cut; gates are the pruner's to check.

    Where units come back, how many is checked when they do.
    """
    plan, saved = Plan.from_json(state["pruner"]["plan"]), state["model"]
    own = Plan.from_json(pruner.state_dict()["plan"])
    is_of_gate = _of_gates(pruner.model)
    unknown = saved.keys() - pruner.model.state_dict().keys()
    if extra := sorted(name for name in unknown if not is_of_gate(name)):
        raise ArgumentError(
            f"`{path}` is of another model: it holds `{extra[0]}`, and the model does "
            "not."
        )
    shapes = _shapes(saved)
    for name, shape in _shapes(pruner.model.state_dict()).items():
        found, cut = shapes.get(name), own.tensors.get(name, {})
        back = {dim: n for dim, n in enumerate(found or ()) if dim in cut}
        kept = {dim: len(units) for dim, units in plan.tensors.get(name, {}).items()}
        expected = [*(dict(enumerate(shape)) | back | kept).values()]
        if found != expected and not is_of_gate(name):
            raise ArgumentError(
                f"`{path}` is of another model: for `{name}` it holds "
                f"{found or 'nothing'}, and {expected} is needed."
            )
    for name, tensor in named_tensors(pruner.model).items():
        read = saved.get(name, tensor)
        if not are_alike(read.dtype, tensor.dtype):
            raise ArgumentError(
                f"`{path}` is of another model: `{name}` is {read.dtype} in it, "
                f"{tensor.dtype} here."
            )

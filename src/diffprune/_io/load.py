"""Turn a fresh model into a saved one. Knows the folder through its readers only."""

import os
from pathlib import Path
from typing import TypeVar

from torch import nn
from torch.optim import Optimizer

from diffprune._core import files
from diffprune._core.snapshot import all_or_nothing
from diffprune._graph.trace import check_plain
from diffprune._io.blueprint import Blueprint
from diffprune._io.change import change_
from diffprune._io.compatibility import Saved, changes
from diffprune._io.saved_optimizer import fitting_state, load_state_, read_state
from diffprune._surgery.apply import named_tensors
from diffprune.errors import ArgumentError
from diffprune.gates.penalty import named_gates

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def load_pruned(
    model: ModuleT,
    folder: str | os.PathLike[str],
    *,
    optimizer: Optimizer | None = None,
) -> ModuleT:
    """Make a fresh model the one that `save_pruned` wrote, in place, bit for bit.

    Args:
        model: Built with the arguments of the saved one before it was pruned. It keeps
            its device, or gets the CPU if it is on the meta device; the numbers have
            the types they were saved with. Gates in it give way to what became of them.
        folder: What `save_pruned` wrote, from anywhere: a file is data, never code.
        optimizer: One made like the saved one, for this model; it follows the new
            parameters and continues where the saved one was.

    Returns:
        The model.

    Raises:
        ArgumentError: If a file is damaged, of a later version, or of another model;
            neither model nor optimizer have changed.
        FileNotFoundError: If the folder does not hold such files.
    """
    check_plain(model)
    source = Path(folder)
    text = files.read_text(source / files.BLUEPRINT)
    saved = _read(source, text)
    needed = changes(saved, model)
    state = None
    if optimizer is not None:
        found = read_state(source / files.OPTIMIZER, text)
        state = fitting_state(found, optimizer, model, needed.tensors)
    # Folding gates away writes into the weights that they multiply.
    folded = named_tensors(model).values() if named_gates(model) else ()
    with all_or_nothing(model, optimizer, overwritten=folded):
        moved = change_(model, needed)
        if optimizer is not None and state is not None:
            load_state_(optimizer, state, moved)
    return model


def _read(folder: Path, text: str) -> Saved:
    blueprint = Blueprint.from_json(text)
    tensors, _ = files.read_tensors(folder / files.WEIGHTS, text)
    for name, first in blueprint.tied.items():
        if first not in tensors:
            raise ArgumentError(
                f"`{folder}` is damaged: `{name}` should be `{first}`, which it lacks."
            )
    shared = {name: tensors[first] for name, first in blueprint.tied.items()}
    return Saved(blueprint, {**tensors, **shared})

"""Turn a fresh model into a saved one. Knows the folder through its readers only."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from diffprune.errors import ArgumentError
from diffprune.gates import fold_gates
from diffprune.graph.trace import check_plain
from diffprune.saving import files
from diffprune.saving.blueprint import Blueprint, Size
from diffprune.saving.fit import (
    Saved,
    changed_modules,
    changed_sizes,
    check_tensors,
    slots,
)
from diffprune.saving.optimizer import (
    check_state,
    load_state_,
    read_state,
)

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
    modules = changed_modules(saved, model)
    sizes = changed_sizes(saved, model, modules)
    check_tensors(saved, model, modules)
    if optimizer is None:
        _change_(model, saved, modules, sizes)
        return model
    state = read_state(source / files.OPTIMIZER, text)
    check_state(state, optimizer, model, saved.tensors)
    load_state_(optimizer, state, _change_(model, saved, modules, sizes))
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


def _change_(
    model: nn.Module,
    saved: Saved,
    modules: Mapping[str, nn.Module],
    sizes: Mapping[str, Mapping[str, Size]],
) -> dict[Tensor, Tensor]:
    """Change everything; return what took the place of each of the model's tensors."""
    home = next((p.device for p in model.parameters()), None)
    fold_gates(model)
    for path, module in modules.items():
        model.set_submodule(path, module)
    for path, new in sizes.items():
        vars(model.get_submodule(path)).update(new)
    places, made, moved = slots(model), dict[Tensor, Tensor](), dict[Tensor, Tensor]()
    for name, tensor in saved.tensors.items():
        place = places[name]
        path, _, attribute = name.rpartition(".")
        owner = model.get_submodule(path)
        if tensor not in made:
            here = tensor.to(home if place is None else place.device)
            is_parameter = attribute in owner._parameters  # noqa: SLF001 - or a buffer
            made[tensor] = _parameter(here, place) if is_parameter else here
        # Through the module: recurrent layers keep a second list of weights.
        setattr(owner, attribute, made[tensor])
        if place is not None:
            moved[place] = made[tensor]
    return moved


def _parameter(tensor: Tensor, place: Tensor | None) -> nn.Parameter:
    if place is None:
        return nn.Parameter(tensor, requires_grad=tensor.is_floating_point())
    parameter = nn.Parameter(tensor, requires_grad=place.requires_grad)
    vars(parameter).update(vars(place))
    return parameter

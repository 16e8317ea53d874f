"""Turn a fresh model into the one that a folder holds, in place."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from diffprune._core import files, tensor_files
from diffprune._core.door import door
from diffprune._core.lending import borrowers
from diffprune._core.modules import named_tensors
from diffprune._core.parameter_hooks import hand_on_hooks_
from diffprune._core.snapshot import all_or_nothing
from diffprune._graph import check_plain, latent_sizes, narrow_
from diffprune._io.blueprint import Blueprint, is_inside
from diffprune._io.compatibility import Changes, Saved, changes, slots
from diffprune._io.saved_optimizer import fitting_state, load_state_, read_state
from diffprune._surgery.apply import laid_out_as
from diffprune.errors import ArgumentError
from diffprune.gates import fold_gates
from diffprune.gates.penalty import named_gates

ModuleT = TypeVar("ModuleT", bound=nn.Module)


@door
def load_pruned(
    model: ModuleT,
    folder: str | os.PathLike[str],
    *,
    optimizer: Optimizer | None = None,
) -> ModuleT:
    """Make a fresh model the one that `save_pruned` wrote, in place, bit for bit.

    Args:
        model: Built with the arguments of the saved one before it was pruned. It keeps
            its device; its tensors get the types that they were saved with. Gates in it
            are replaced by the modules that took their places in the saved model.
        folder: What `save_pruned` wrote. It may come from anybody, because the files
            hold data and no code.
        optimizer: An optimizer for this model, made like the saved one. It gets the new
            parameters and continues where the saved one was.

    Returns:
        The model.

    Raises:
        ArgumentError: If a file is damaged, of a later version, or of another model;
            neither model nor optimizer have changed.
        MissingFileError: If the folder does not hold such files.
    """
    check_plain(model)
    source = Path(folder)
    text = files.read_text(source / files.BLUEPRINT)
    saved = _read(source, text)
    needed = changes(saved, model)
    state = None
    if optimizer is not None:
        with (source / files.WEIGHTS).open("rb") as file:
            beside = text + tensor_files.stored_digest(file)
        found = read_state(source / files.OPTIMIZER, beside)
        state = fitting_state(found, optimizer, model, needed.tensors)
    # Folding gates away writes into the weights that they multiply.
    own, has_gates = named_tensors(model), bool(named_gates(model))
    folded = own.values() if has_gates else ()
    lent = {} if has_gates else _borrowers(own, needed)
    with all_or_nothing(model, optimizer, overwritten=folded) as lend_:
        lend_(lent)
        moved = _change_(model, needed, lent)
        if optimizer is not None and state is not None:
            load_state_(optimizer, state, moved)
    return model


def _read(folder: Path, text: str) -> Saved:
    try:
        blueprint = Blueprint.from_json(text)
    except ArgumentError as error:
        raise ArgumentError(f"`{folder / files.BLUEPRINT}`: {error}") from error
    tensors, _ = tensor_files.map_tensors(folder / files.WEIGHTS, text)
    for name, first in blueprint.tied.items():
        if first not in tensors:
            raise ArgumentError(
                f"`{folder}` is damaged: `{name}` should be `{first}`, which it lacks."
            )
    shared = {name: tensors[first] for name, first in blueprint.tied.items()}
    return Saved(blueprint, {**tensors, **shared})


def _borrowers(own: Mapping[str, Tensor], changes: Changes) -> dict[Tensor, Tensor]:
    """Tensors that stay, and what was read for them."""
    stay = {n: t for n, t in own.items() if not is_inside(n, changes.modules)}
    return borrowers(stay, changes.tensors)


def _change_(
    model: nn.Module, changes: Changes, lent: Mapping[Tensor, Tensor]
) -> dict[Tensor, Tensor]:
    """Change everything; return what took the place of each of the model's tensors."""
    home = next((p.device for p in model.parameters()), torch.device("cpu"))
    fold_gates(model)
    for path, module in changes.modules.items():
        model.set_submodule(path, module)
    for path, sizes in changes.sizes.items():
        module = model.get_submodule(path)
        if latent_sizes(module).keys() & sizes:
            narrow_(module)
        held = vars(module)
        for name, size in sizes.items():
            several = [*size] if isinstance(size, tuple) else []
            held[name] = several if type(held.get(name)) is list else size
    return _replace_tensors_(model, changes.tensors, lent, home)


def _replace_tensors_(
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    lent: Mapping[Tensor, Tensor],
    home: torch.device,
) -> dict[Tensor, Tensor]:
    made = {read: stays for stays, read in lent.items()}
    moved = dict[Tensor, Tensor]()
    places = slots(model)
    for name, tensor in tensors.items():
        path, _, attribute = name.rpartition(".")
        owner, place = model.get_submodule(path), places[name]
        if tensor not in made:
            device = home if place is None else place.device
            here = tensor_files.copied(tensor, device)
            if place is not None and place.ndim == here.ndim:
                here = laid_out_as(place, here)
            is_parameter = attribute in owner._parameters  # noqa: SLF001 - or a buffer
            made[tensor] = _parameter(here, place) if is_parameter else here
        # Through the module: recurrent layers keep a second list of weights.
        setattr(owner, attribute, made[tensor])
        if place is not None:
            moved[place] = made[tensor]
    return moved


def _parameter(tensor: Tensor, place: Tensor | None) -> nn.Parameter:
    """A parameter that carries what the one in its place did."""
    if place is None:
        return nn.Parameter(tensor, requires_grad=tensor.is_floating_point())
    parameter = nn.Parameter(tensor, requires_grad=place.requires_grad)
    vars(parameter).update(vars(place))
    if isinstance(place, nn.Parameter):
        hand_on_hooks_(place, parameter)
    return parameter

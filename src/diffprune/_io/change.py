"""Make the changes that turn a fresh model into a saved one. Decides nothing."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from diffprune._graph import latent_sizes, narrow_
from diffprune._io.compatibility import Changes, slots
from diffprune.gates import fold_gates


def change_(model: nn.Module, changes: Changes) -> dict[Tensor, Tensor]:
    """Change everything; return what took the place of each of the model's tensors."""
    home = next((p.device for p in model.parameters()), torch.device("cpu"))
    fold_gates(model)
    for path, module in changes.modules.items():
        model.set_submodule(path, module)
    for path, sizes in changes.sizes.items():
        module = model.get_submodule(path)
        if latent_sizes(module).keys() & sizes:
            narrow_(module)
        vars(module).update(sizes)
    return _replace_tensors_(model, changes.tensors, home)


def _replace_tensors_(
    model: nn.Module, tensors: Mapping[str, Tensor], home: torch.device
) -> dict[Tensor, Tensor]:
    made, moved = dict[Tensor, Tensor](), dict[Tensor, Tensor]()
    places = slots(model)
    for name, tensor in tensors.items():
        path, _, attribute = name.rpartition(".")
        owner, place = model.get_submodule(path), places[name]
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
    """A parameter that carries what the one in its place did."""
    if place is None:
        return nn.Parameter(tensor, requires_grad=tensor.is_floating_point())
    parameter = nn.Parameter(tensor, requires_grad=place.requires_grad)
    vars(parameter).update(vars(place))
    return parameter

"""Gates on a layer's own parameters."""

from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from diffprune._core.arguments import shown
from diffprune._core.door import door
from diffprune._core.modules import check_has_values
from diffprune._core.types import Int
from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.gates.base import BaseGate
from diffprune.gates.gate import Gate

ModuleT = TypeVar("ModuleT", bound=nn.Module)


@door
def gate_weight(
    layer: nn.Module,
    name: str = "weight",
    *,
    index: Int[Tensor, "..."] | None = None,
    **options: Any,  # noqa: ANN401 - those of Gate
) -> Gate:
    """Gate a parameter of `layer` in place: every single number, or groups of them.

    `torch.nn.utils.parametrize.remove_parametrizations` undoes it; `fold_gates` makes
    it permanent.

    Args:
        layer: The module that owns the parameter.
        name: The parameter's name in `layer`.
        index: The unit of each number, in the parameter's shape. By default each number
            is a unit of its own.
        **options: Passed on to `Gate`.

    Examples:
        >>> layer = nn.Linear(3, 2)
        >>> rows = torch.tensor([[0, 0, 0], [1, 1, 1]])
        >>> gate_weight(layer, index=rows).size
        2
        >>> fold_gates(layer)
        Linear(in_features=3, out_features=2, bias=True)
    """
    check_has_values(layer)
    if isinstance(layer, torch.jit.ScriptModule):
        raise ArgumentError(
            "the layer is compiled by TorchScript, and nothing can be added to it. "
            "Gate the layer that it was made from."
        )
    weight = _parameter(layer, name)
    if index is None:
        index = torch.arange(weight.numel(), device=weight.device).view(weight.shape)
    if not weight.is_floating_point():
        raise ArgumentError(
            f"`{name}` of the layer holds {weight.dtype}, and gates multiply floating "
            "point numbers."
        )
    if index.shape != weight.shape or not index.numel() or int(index.min()) < 0:
        raise ArgumentError(
            f"index must have the shape of {name}, {tuple(weight.shape)}, and count "
            f"from zero, got {shown(index)}."
        )
    gate = Gate(int(index.max()) + 1, index=index, dim=0, **options).to(weight)
    parametrize.register_parametrization(layer, name, gate)
    return gate


@door
def fold_gates(module: ModuleT) -> ModuleT:
    """Multiply gated parameters by their gates for good, in place; no gate is left.

    A gated parameter that other layers have too is theirs alone afterwards: the layer
    of the gate gets one of its own.

    Args:
        module: A model with parameters that `gate_weight` has gated, in any layer.

    Returns:
        The same module.
    """
    for layer in list(module.modules()):
        if not parametrize.is_parametrized(layer):
            continue
        for name, chain in list(_parametrizations(layer).items()):
            if any(isinstance(step, BaseGate) for step in chain):
                chain.eval()  # the values of inference: noise must not become a weight
                _take_own_original_(chain, module)
                _take_own_class_(layer)
                parametrize.remove_parametrizations(layer, name)
    return module


def _take_own_original_(chain: parametrize.ParametrizationList, of: nn.Module) -> None:
    """Part a parameter from layers that share it: torch writes what is folded to it."""
    for name, own in list(chain.named_parameters(recurse=False)):
        holders = [m for m in of.modules() if _holds(m, own)]
        if len(holders) > 1:
            setattr(chain, name, nn.Parameter(own.detach().clone(), own.requires_grad))


def _holds(module: nn.Module, parameter: nn.Parameter) -> bool:
    return any(own is parameter for own in module.parameters(recurse=False))


def _take_own_class_(layer: nn.Module) -> None:
    """Part the class of a parametrized layer from that of its deep copies.

    They share one, and torch deletes from it the property that all of them read.
    """
    shared = type(layer)
    own: Any = type(shared.__name__, shared.__bases__, dict(vars(shared)))
    layer.__class__ = own


def _parameter(layer: nn.Module, name: str) -> Tensor:
    parameters = dict(layer.named_parameters(recurse=False))
    if name not in parameters:
        raise UnknownNameError(
            f"the layer, a {type(layer).__name__}, has no ungated parameter of the "
            f"name {name!r}; it has {', '.join(parameters) or 'none'}."
        )
    return parameters[name]


def _parametrizations(layer: nn.Module) -> dict[str, parametrize.ParametrizationList]:
    chains = layer.get_submodule("parametrizations")
    return {
        name: chain
        for name, chain in chains.named_children()
        if isinstance(chain, parametrize.ParametrizationList)
    }

"""Run a model and stop by at every linear map it computes.

The walk that evidence and refits share: linear layers, convolutions and matrix products
are shown as `LinearMap`s, those inside recurrent layers and attention too.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from torch import Tensor, nn
from torch.nn import functional as F

from diffprune._choice.linear_maps import Dense, LinearMap, linear_map
from diffprune._choice.unrolled import is_recurrent, run_unrolled
from diffprune._choice.watch import FunctionCall, Watch
from diffprune._core.transforms import is_transformed
from diffprune._graph import ExampleInputs, own_arguments

Compute: TypeAlias = Callable[[Tensor], Tensor]
"""From what a linear map multiplies its weight with to its result."""

AtMap: TypeAlias = Callable[[LinearMap, Compute], Tensor]
"""Gets a linear map and a function that computes it; returns the result."""

_LOOKS: Final = frozenset({"__get__", "__set__", "dim", "size", "detach", "stride"})


def run_watched(
    model: nn.Module,
    inputs: ExampleInputs,
    at_map: AtMap,
    otherwise: Callable[[FunctionCall], Any] = FunctionCall.run,
) -> Any:  # noqa: ANN401 - what the model returns
    """Run a model.

    Args:
        model: In the mode it is to run in.
        inputs: As for `find_groups`.
        at_map: What to do at each linear map.
        otherwise: What to do at each other call.
    """
    args, kwargs = own_arguments(inputs)
    with watch_maps(at_map, otherwise):
        return model(*args, **kwargs)


def watch_maps(
    at_map: AtMap, otherwise: Callable[[FunctionCall], Any] = FunctionCall.run
) -> Watch:
    """A context in which every linear map that runs is shown; as for `run_watched`.

    Those inside `torch.func.jvp`, `torch.vmap` and the like are calls as any other: the
    tensors there stand for others.
    """

    def handle(call: FunctionCall) -> Any:  # noqa: ANN401 - what the call returns
        if is_transformed():
            return otherwise(call)
        if is_recurrent(call):
            return run_unrolled(call, product)
        found = linear_map(call)
        if found is None:
            return otherwise(call)
        return at_map(found, lambda x: call.run_with(found.x, x))

    def product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        found = Dense(x, weight, bias)
        return at_map(found, lambda x: F.linear(x, weight, bias))

    return Watch(handle)


def computes(call: FunctionCall) -> bool:
    """Whether a call reads the numbers of its tensors, not only what they are like."""
    return call.name not in _LOOKS


def names_of(model: nn.Module) -> dict[int, str]:
    """The first name of every parameter and buffer, by identity."""
    found = dict[int, str]()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        found.setdefault(id(tensor), name)
    return found


def first_names(model: nn.Module) -> dict[str, str]:
    """By every name of a parameter, the first it has."""
    names = names_of(model)
    named = model.named_parameters(remove_duplicate=False)
    return {name: names[id(parameter)] for name, parameter in named}

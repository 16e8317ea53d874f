"""Copies of models in double precision, and back. Knows nothing of removal."""

import copy
from typing import Any, Generic, NamedTuple, TypeVar

from torch import Tensor, nn

from diffprune._graph.trace import ExampleInputs
from diffprune._surgery.apply import named_tensors
from diffprune._surgery.compare import doubled, outputs

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class Fine(NamedTuple, Generic[ModuleT]):
    """A copy of a model, inputs of its precision, and what it returns for them."""

    model: ModuleT
    inputs: Any
    returned: list[Tensor]
    is_double: bool


def in_double(model: ModuleT, inputs: ExampleInputs) -> Fine[ModuleT]:
    """Copy a model, in double precision if it runs in it."""
    fine, fine_inputs = copy.deepcopy(model).double(), doubled(inputs)
    try:
        returned = outputs(fine, fine_inputs)
    except Exception:  # noqa: BLE001 - a layer may raise anything about a dtype
        coarse = copy.deepcopy(model)
        return Fine(coarse, inputs, outputs(coarse, inputs), is_double=False)
    return Fine(fine, fine_inputs, returned, is_double=True)


def cast_like_(model: nn.Module, like: nn.Module) -> None:
    """Give every tensor the type of its namesake in another model."""
    types = {name: tensor.dtype for name, tensor in named_tensors(like).items()}
    for name, tensor in named_tensors(model).items():
        tensor.data = tensor.data.to(types[name])

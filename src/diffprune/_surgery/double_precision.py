"""Models and inputs in double precision, where they run in it, and back."""

from typing import Any, Generic, NamedTuple, TypeVar

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from diffprune._core.copying import copied
from diffprune._core.modules import named_tensors
from diffprune._graph import ExampleInputs
from diffprune._surgery.compare import Outputs, outputs

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class Fine(NamedTuple, Generic[ModuleT]):
    """A copy of a model, inputs of its precision, and what it returns for them."""

    model: ModuleT
    inputs: Any
    returned: Outputs
    is_double: bool


def in_double(model: ModuleT, inputs: ExampleInputs) -> Fine[ModuleT]:
    """Copy a model, in double precision if it and its device run in it."""
    try:
        fine, fine_inputs = copied(model).double(), doubled(inputs)
        returned = outputs(fine, fine_inputs)
    except Exception:  # noqa: BLE001 - a layer may raise anything about a dtype
        coarse = copied(model)
        return Fine(coarse, inputs, outputs(coarse, inputs), is_double=False)
    return Fine(fine, fine_inputs, returned, is_double=True)


def doubled(inputs: ExampleInputs) -> Any:  # noqa: ANN401 - as nested as given
    """The inputs with every floating-point tensor in double precision."""

    def double(x: Tensor) -> Tensor:
        return x.double() if x.is_floating_point() else x

    return pytree.tree_map_only(Tensor, double, inputs)


def cast_like_(model: nn.Module, like: nn.Module) -> None:
    """Give every tensor the type of its namesake in another model."""
    types = {name: tensor.dtype for name, tensor in named_tensors(like).items()}
    for name, tensor in named_tensors(model).items():
        tensor.data = tensor.data.to(types[name])

"""Apply a plan to a model. Knows no groups and no reasons, only names and indices."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from diffprune.errors import ArgumentError
from diffprune.surgery.plan import Indices, Plan

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def apply_plan(model: ModuleT, plan: Plan) -> ModuleT:
    """Return a smaller copy of the model; the original is left as it is.

    Raises:
        ArgumentError: If the plan was made for a model of other shapes.
    """
    check_fits(model, plan)
    small = copy.deepcopy(model)
    apply_plan_(small, plan)
    return small


def apply_plan_(model: nn.Module, plan: Plan) -> dict[Tensor, Tensor]:
    """Make the model smaller in place.

    Every shrunk parameter becomes a new `Parameter` object: the old one may still be
    held by a loss tensor of an earlier step, and keeps its shape for it.

    Returns:
        The new tensor for every old one, for whoever else holds the old ones.
    """
    check_fits(model, plan)
    replaced: dict[Tensor, Tensor] = {}
    for name, dims in plan.tensors.items():
        owner, attribute = _owner(model, name)
        old = getattr(owner, attribute)
        if old not in replaced:
            replaced[old] = shrink(old, dims)
        _assign(owner, attribute, replaced[old])
    for name, value in plan.attributes.items():
        owner, attribute = _owner(model, name)
        vars(owner)[attribute] = value
    for module in model.modules():
        refresh_attributes_(module)
    return replaced


def select(tensor: Tensor, dims: Mapping[int, Indices]) -> Tensor:
    """Keep only these indices of these dimensions."""
    for dim, kept in dims.items():
        index = torch.tensor(kept, device=tensor.device, dtype=torch.long)
        tensor = tensor.index_select(dim, index)
    return tensor


def shrink(tensor: Tensor, dims: Mapping[int, Indices]) -> Tensor:
    """Like `select`, as a new leaf that keeps what a parameter or buffer carries."""
    small = select(tensor.detach(), dims)
    if not isinstance(tensor, nn.Parameter):
        return small
    parameter = nn.Parameter(small, requires_grad=tensor.requires_grad)
    if tensor.grad is not None:
        parameter.grad = select(tensor.grad, dims)
    return parameter


def check_fits(model: nn.Module, plan: Plan) -> None:
    """Refuse a plan made for other shapes, before anything is touched."""
    tensors = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    for name, dims in plan.tensors.items():
        if name not in tensors:
            raise ArgumentError(
                f"the plan cuts `{name}`, which this model does not have."
            )
        for dim, kept in dims.items():
            shape = tuple(tensors[name].shape)
            if dim >= len(shape) or max(kept, default=-1) >= shape[dim]:
                raise ArgumentError(
                    f"the plan keeps index {max(kept)} of dimension {dim} of `{name}`, "
                    f"whose shape is {shape}. It was made for a larger model."
                )


def _owner(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, attribute = name.rpartition(".")
    return model.get_submodule(path), attribute


def _assign(owner: nn.Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, nn.Parameter):
        # Through the module, because recurrent layers keep a second list of weights.
        setattr(owner, name, tensor)
    else:
        owner._buffers[name] = tensor  # noqa: SLF001 - keeps the persistence as it was


def _linear(module: nn.Linear) -> dict[str, Any]:
    return {
        "out_features": module.weight.shape[0],
        "in_features": module.weight.shape[1],
    }


def _conv(module: _ConvNd) -> dict[str, Any]:
    first, second = module.weight.shape[0], module.weight.shape[1] * module.groups
    outputs, inputs = (second, first) if module.transposed else (first, second)
    return {"in_channels": inputs, "out_channels": outputs}


def _norm(module: _NormBase) -> dict[str, Any]:
    vectors: Sequence[Tensor | None] = (module.weight, module.running_mean)
    widths = [vector.shape[0] for vector in vectors if vector is not None]
    return {"num_features": widths[0]} if widths else {}


def _group_norm(module: nn.GroupNorm) -> dict[str, Any]:
    return {"num_channels": module.weight.shape[0]} if module.affine else {}


def _embedding(module: nn.Embedding | nn.EmbeddingBag) -> dict[str, Any]:
    rows, width = module.weight.shape
    return {"num_embeddings": rows, "embedding_dim": width}


def _prelu(module: nn.PReLU) -> dict[str, Any]:
    return {"num_parameters": module.weight.shape[0]}


def _recurrent(module: nn.RNNBase) -> dict[str, Any]:
    rows, inputs = module.get_parameter("weight_ih_l0").shape
    gates = {"LSTM": 4, "GRU": 3}.get(module.mode, 1)
    return {"input_size": inputs, "hidden_size": rows // gates}


_DESCRIBED: tuple[
    tuple[
        type[nn.Module] | tuple[type[nn.Module], ...], Callable[[Any], dict[str, Any]]
    ],
    ...,
] = (  # noqa: E501
    (nn.Linear, _linear),
    (_ConvNd, _conv),
    (_NormBase, _norm),
    (nn.GroupNorm, _group_norm),
    ((nn.Embedding, nn.EmbeddingBag), _embedding),
    (nn.PReLU, _prelu),
    (nn.RNNBase, _recurrent),
)


def refresh_attributes_(module: nn.Module) -> None:
    """Make the widths a layer reports about itself those of its tensors."""
    for kind, described in _DESCRIBED:
        if isinstance(module, kind):
            vars(module).update(described(module))

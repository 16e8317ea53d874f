"""Apply a plan to a model."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from diffprune._core.copying import copied
from diffprune._core.door import door
from diffprune._core.modules import named_tensors
from diffprune._core.parameter_hooks import hand_on_hooks_
from diffprune._graph import latent_sizes, narrow_named_
from diffprune._surgery.plan import Indices, Plan
from diffprune.errors import ArgumentError

ModuleT = TypeVar("ModuleT", bound=nn.Module)
ManyT = TypeVar("ManyT", tuple[int, ...], list[int])


@door
def apply_plan(model: ModuleT, plan: Plan) -> ModuleT:
    """Return a smaller copy of the model. Outputs are not compared; see `removal`.

    Args:
        model: Left as it is.
        plan: From `plan_removal`, on groups of this model.

    Raises:
        ArgumentError: If the plan was made for another model.
    """
    check_fits(model, plan)
    tensors = named_tensors(model)
    # What a deep copy finds in its memo it takes for the copy: tensors shrink on the
    # way, under all their names at once, and nothing is copied at full size; modules
    # that disappear are not copied at all.
    memo: dict[int, Any] = {
        id(tensors[name]): shrink(tensors[name], dims)
        for name, dims in plan.tensors.items()
    }
    stubs = plan.stubs.items()
    memo |= {id(model.get_submodule(path)): stub.build() for path, stub in stubs}
    small = copied(model, memo)
    small.zero_grad()  # a copied parameter has no gradient; nor shall a shrunk one
    _refresh_(small, plan)
    return small


@door
def apply_plan_(model: nn.Module, plan: Plan) -> dict[Tensor, Tensor]:
    """Make the model smaller in place. Outputs are not compared.

    Every shrunk parameter becomes a new `Parameter` object: the old one may still be
    held by a loss tensor of an earlier step, and keeps its shape for it. Hooks of the
    old one are hooks of the new one as well.

    Args:
        model: The model.
        plan: From `plan_removal`, on groups of this model.

    Returns:
        The new tensor for every old one, for whoever else holds the old ones.

    Raises:
        ArgumentError: If the plan was made for another model; nothing has changed.
    """
    check_fits(model, plan)
    tensors = named_tensors(model)
    replaced = {
        tensors[name]: shrink(tensors[name], d) for name, d in plan.tensors.items()
    }
    for name, tensor in tensors.items():
        if tensor in replaced:
            owner, attribute = _owner(model, name)
            # Recurrent layers keep a second list of weights, which this updates too.
            setattr(owner, attribute, replaced[tensor])
    for old, new in replaced.items():
        if isinstance(old, nn.Parameter) and isinstance(new, nn.Parameter):
            hand_on_hooks_(old, new)
    for path, stub in plan.stubs.items():
        replace_module_(model, model.get_submodule(path), stub.build())
    _refresh_(model, plan)
    return replaced


def select(tensor: Tensor, dims: Mapping[int, Indices]) -> Tensor:
    """Keep only these indices of these dimensions, and the layout in memory."""
    small = tensor
    for dim, kept in dims.items():
        index = torch.tensor(kept, device=tensor.device, dtype=torch.long)
        small = small.index_select(dim, index)
    return laid_out_as(tensor, small)


def laid_out_as(like: Tensor, tensor: Tensor) -> Tensor:
    """The same numbers, their dimensions in memory in the order of another tensor's.

    Kernels go by it: a product in another layout rounds differently, and a convolution
    may be slower.

    Examples:
        >>> laid_out_as(torch.ones(4, 3).T, torch.ones(2, 4)).stride()
        (1, 2)
    """
    memory_format = _memory_format(like)
    if like.is_contiguous() or memory_format is not torch.preserve_format:
        return tensor.to(memory_format=memory_format)
    order = sorted(range(like.ndim), key=like.stride, reverse=True)
    places = [order.index(dim) for dim in range(like.ndim)]
    return tensor.permute(order).contiguous().permute(places)


def _memory_format(tensor: Tensor) -> torch.memory_format:
    """What convolutions go by: strides, which tell even where there is one channel."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensor.dim())
    if last is None or tensor.stride() == _strides(tensor, torch.contiguous_format):
        return torch.preserve_format
    is_last = tensor.stride() == _strides(tensor, last)
    return last if is_last else torch.preserve_format


def _strides(tensor: Tensor, memory_format: torch.memory_format) -> tuple[int, ...]:
    like = torch.empty(tensor.shape, device="meta", memory_format=memory_format)
    return like.stride()


def shrink(tensor: Tensor, dims: Mapping[int, Indices]) -> Tensor:
    """Like `select`, as a new leaf that keeps what a parameter or buffer carries."""
    small = select(tensor.detach(), dims)
    if not isinstance(tensor, nn.Parameter):
        return small
    parameter = nn.Parameter(small, requires_grad=tensor.requires_grad)
    vars(parameter).update(vars(tensor))
    if tensor.grad is not None:
        parameter.grad = select(tensor.grad, dims)
    return parameter


def check_fits(model: nn.Module, plan: Plan) -> None:
    """Refuse a plan made for another model, before anything is touched.

    Raises:
        ArgumentError: If the model lacks a tensor, index or attribute of the plan.
    """
    tensors = named_tensors(model)
    for name, dims in plan.tensors.items():
        if name not in tensors:
            raise ArgumentError(
                f"the plan cuts `{name}`, which this model does not have. Apply it "
                "to a model like the one it was made for."
            )
        _check_dims(name, tuple(tensors[name].shape), dims)
    modules = dict(model.named_modules(remove_duplicate=False))
    for name, value in plan.attributes.items():
        _check_attribute(modules, name, value)
    for path in plan.stubs.keys() - (modules.keys() - {""}):
        raise ArgumentError(
            f"the plan replaces `{path}`, which this model does not have. Apply it to "
            "a model like the one it was made for."
        )


def _check_dims(name: str, shape: tuple[int, ...], dims: Mapping[int, Indices]) -> None:
    for dim, kept in dims.items():
        length = shape[dim] if dim in range(len(shape)) else 0
        if not kept or min(kept) < 0 or max(kept) >= length:
            last = max(kept, default="None")
            raise ArgumentError(
                f"the plan keeps index {last} of dimension {dim} of `{name}`, whose "
                f"shape is {shape}. It was made for another model, or was applied "
                "already."
            )


def _check_attribute(modules: Mapping[str, nn.Module], name: str, value: int) -> None:
    path, _, attribute = name.rpartition(".")
    owner = modules.get(path)
    held = {} if owner is None else {**vars(owner), **latent_sizes(owner)}
    own, place = _entry(attribute)
    before: Any = held.get(own)
    if place is not None:
        entries: Any = before if type(before) in (tuple, list) else ()
        before = entries[place] if place < len(entries) else None
    if type(before) is not int or not 0 < value <= before:
        raise ArgumentError(
            f"the plan sets `{name}` to {value}, where this model has {before!r}. "
            "It was made for another model, or was applied already."
        )


def _refresh_(model: nn.Module, plan: Plan) -> None:
    """Set the attributes that the plan names."""
    narrow_named_(model, (*plan.tensors, *plan.attributes))
    for name, value in plan.attributes.items():
        owner, attribute = _owner(model, name)
        own, place = _entry(attribute)
        new = value if place is None else _with_entry(vars(owner)[own], place, value)
        vars(owner)[own] = new


def _with_entry(entries: ManyT, place: int, value: int) -> ManyT:
    return type(entries)((*entries[:place], value, *entries[place + 1 :]))


def _entry(attribute: str) -> tuple[str, int | None]:
    """The attribute that is meant, and its entry if it holds several numbers.

    Examples:
        >>> _entry("num_heads"), _entry("normalized_shape[0]")
        (('num_heads', None), ('normalized_shape', 0))
    """
    found = re.fullmatch(r"(\w+)\[(\d+)\]", attribute)
    return (attribute, None) if found is None else (found[1], int(found[2]))


def replace_module_(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put a module in the place of another, under all names of that."""
    for path, module in list(model.named_modules(remove_duplicate=False)):
        if module is old:
            model.set_submodule(path, new)


def _owner(model: nn.Module, name: str) -> tuple[nn.Module, str]:
    path, _, attribute = name.rpartition(".")
    return model.get_submodule(path), attribute

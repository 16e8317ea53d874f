"""Whether a saved model is a smaller version of this one.

Everything is decided before anything is changed. Widths and shapes only ever shrink, so
whatever is larger in the file than in the model belongs to another model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from diffprune._graph import latent_sizes, weight_dims
from diffprune._io.blueprint import Blueprint, Size, is_inside, sizes_of
from diffprune.errors import ArgumentError
from diffprune.gates import BaseGate


@dataclass(frozen=True)
class Saved:
    """A model as a file has it: a blueprint, and a tensor for every name."""

    blueprint: Blueprint
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class Changes:
    """All that a fresh model must change to become a saved one.

    Attributes:
        modules: New modules, by path.
        sizes: New integers, by path and attribute.
        tensors: The new tensor for every name; shared ones are one object.
    """

    modules: Mapping[str, nn.Module]
    sizes: Mapping[str, Mapping[str, Size]]
    tensors: Mapping[str, Tensor]


def changes(saved: Saved, model: nn.Module) -> Changes:
    """Find out what has to change; nothing is.

    Raises:
        ArgumentError: If the saved model is not a smaller version of this one.
    """
    modules = _new_modules(saved, model)
    sizes = _new_sizes(saved, model, modules)
    _check_tensors(saved, model, modules)
    _check_consistent(saved, model, modules)
    return Changes(modules, sizes, saved.tensors)


def _new_modules(saved: Saved, model: nn.Module) -> dict[str, nn.Module]:
    """New modules for the paths where the saved model has something plainer."""
    modules = dict(model.named_modules(remove_duplicate=False))
    changed: dict[str, nn.Module] = {}
    for path, plain in saved.blueprint.plain.items():
        if path not in modules or is_inside(path, changed):
            raise _other(saved, model, f"it has a module `{path}`, the model has none")
        if plain != type(plain).of(modules[path]):
            changed[path] = plain.build().train(modules[path].training)
    return changed


def _new_sizes(
    saved: Saved, model: nn.Module, changed: Mapping[str, nn.Module]
) -> dict[str, dict[str, Size]]:
    """What modules must say of themselves instead of what they say now."""
    modules = dict(model.named_modules(remove_duplicate=False))
    found: dict[str, dict[str, Size]] = {}
    for path, sizes in saved.blueprint.sizes.items():
        if path in changed or is_inside(path, changed):
            continue
        if path not in modules:
            raise _other(saved, model, f"it has a module `{path}`, the model has none")
        latent = latent_sizes(modules[path])
        before = {**sizes_of(modules[path]), **latent}
        # What a fresh model does not have was noted by its forward, not built into it.
        # Nor is a list of another length one of widths, but one that notes something.
        known = {
            n: s
            for n, s in sizes.items()
            if n in before and not _is_another_list(modules[path], n, s)
        }
        new = {n: s for n, s in known.items() if s != before[n] or n in latent}
        for name, size in new.items():
            if not _is_smaller(size, before[name]):
                where = f"{path}.{name}".lstrip(".")
                difference = f"`{where}` is {size} in it, {before[name]} here"
                raise _other(saved, model, difference, _if_counted(where, before[name]))
        found[path] = new
    return found


def _is_another_list(module: nn.Module, name: str, size: Size) -> bool:
    held = vars(module).get(name)
    entries = size if isinstance(size, tuple) else ()
    return type(held) is list and len(cast("list[int]", held)) != len(entries)


def _check_tensors(
    saved: Saved, model: nn.Module, changed: Mapping[str, nn.Module]
) -> None:
    """Refuse tensors that have no place in the model, or leave one empty."""
    expected = _expected(model, changed)
    for name, tensor in saved.tensors.items():
        if name not in expected:
            raise _other(saved, model, f"it has `{name}`, the model does not")
        _check_tensor(saved, model, name, expected[name], tensor)
    for name, place in expected.items():
        if place is not None and name not in saved.tensors:
            raise _other(saved, model, f"it lacks `{name}`")


def _check_consistent(
    saved: Saved, model: nn.Module, changed: Mapping[str, nn.Module]
) -> None:
    """Refuse a layer that says another width than its tensors have."""
    for path, module in model.named_modules(remove_duplicate=False):
        weight = saved.tensors.get(f"{path}.weight".lstrip("."))
        if path in changed or is_inside(path, changed) or weight is None:
            continue
        said = {**sizes_of(module), **saved.blueprint.sizes.get(path, {})}
        for name, dim in weight_dims(module).items():
            if said[name] != weight.shape[dim]:
                where = f"{path}.{name}".lstrip(".")
                own = f"{path}.weight".lstrip(".")
                raise _other(
                    saved,
                    model,
                    f"it contradicts itself: `{where}` is {said[name]} and `{own}` has "
                    f"the shape {list(weight.shape)}",
                )


def _check_tensor(
    saved: Saved, model: nn.Module, name: str, place: Tensor | None, tensor: Tensor
) -> None:
    if place is None:
        return
    if not _is_smaller(tuple(tensor.shape), tuple(place.shape)):
        shapes = f"{list(tensor.shape)} in it, {list(place.shape)} here"
        raise _other(saved, model, f"`{name}` is {shapes}")
    if not are_alike(tensor.dtype, place.dtype):
        raise _other(
            saved, model, f"`{name}` is {tensor.dtype} in it, {place.dtype} here"
        )


def are_alike(one: torch.dtype, other: torch.dtype) -> bool:
    """Whether numbers of one type can stand for those of another.

    Examples:
        >>> are_alike(torch.float16, torch.float32), are_alike(torch.int8, torch.bool)
        (True, False)
    """
    return one == other or (one.is_floating_point and other.is_floating_point)


def slots(model: nn.Module) -> dict[str, Tensor | None]:
    """All places for tensors once gated weights are folded; a place may be empty."""
    found = {
        f"{path}.{name}".lstrip("."): tensor
        for path, module in model.named_modules(remove_duplicate=False)
        for held in (module._parameters, module._buffers)  # noqa: SLF001 - None counts
        for name, tensor in held.items()
    }
    for path, chain in _gated_weights(model).items():
        layer, _, weight = f".{path}".rpartition(".parametrizations.")
        found = {n: t for n, t in found.items() if not is_inside(n, [path])}
        found[f"{layer}.{weight}".lstrip(".")] = chain().detach()
    return found


def _gated_weights(model: nn.Module) -> dict[str, ParametrizationList]:
    return {
        path: chain
        for path, chain in model.named_modules()
        if isinstance(chain, ParametrizationList)
        and any(isinstance(step, BaseGate) for step in chain)
    }


def _expected(
    model: nn.Module, changed: Mapping[str, nn.Module]
) -> dict[str, Tensor | None]:
    kept = {n: t for n, t in slots(model).items() if not is_inside(n, changed)}
    for path, module in changed.items():
        kept |= {f"{path}.{name}": tensor for name, tensor in slots(module).items()}
    return kept


def _is_smaller(size: Size, before: Size) -> bool:
    if isinstance(size, int) or isinstance(before, int):
        return isinstance(size, int) and isinstance(before, int) and 0 <= size <= before
    same = len(size) == len(before)
    return same and all(map(_is_smaller, size, before))


def _if_counted(where: str, before: Size) -> str:
    """What to do about a number that is larger because a forward adds to it."""
    if not isinstance(before, int):
        return ""
    return f" If its forward counts that, save after `model.{where} = {before}`."


def _other(
    saved: Saved, model: nn.Module, difference: str, advice: str = ""
) -> ArgumentError:
    return ArgumentError(
        f"the saved `{saved.blueprint.model}` is not a smaller version of this "
        f"`{type(model).__name__}`: {difference}.\nBuild the model with the arguments "
        f"it was made with before it was pruned.{advice} Nothing was changed."
    )

"""Move constants that units carry into the layers that read them.

A filter with zero weights and a bias still adds something to the next layer. Where that
layer has a bias and no zero padding, the bias can say it instead. Elsewhere one unit
can say it for all: its constant times other weights.
"""

from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd
from torch.utils.hooks import RemovableHandle

from diffprune._core.types import Bool, Float
from diffprune._graph import Atom, Axis, ExampleInputs, mask
from diffprune._surgery.compare import outputs
from diffprune._surgery.drawn_inputs import resized


@dataclass(frozen=True)
class Reader:
    """A layer that sums over an axis, and what it was given along it.

    Attributes:
        layer: A linear or convolution layer.
        axis: What its input dimension is made of.
        inputs: For each element of that dimension its constant; NaN where it varies.
    """

    layer: nn.Linear | _ConvNd
    axis: Axis
    inputs: Float[Tensor, " n"]

    def elements(self, atom: Atom, unit: int) -> Bool[Tensor, " n"]:
        """The elements of the input dimension that belong to one unit."""
        chosen = torch.zeros(atom.size, dtype=torch.bool)
        chosen[unit] = True
        return mask(self.axis, {atom: chosen})


def watch(
    model: nn.Module, layers: Mapping[str, Axis], inputs: ExampleInputs
) -> dict[str, Reader]:
    """Run the model and note what each layer was given, if always the same.

    On inputs of other sizes too, where the model takes them: a sum over positions, or
    an average at a border, is a constant of one size alone.
    """
    modules = {name: model.get_submodule(name) for name in layers}
    seen = _inputs_of(model, modules, inputs)
    for other in resized(inputs):
        with suppress(Exception):  # the model need not take them
            seen = _same(seen, _inputs_of(model, modules, other))
    return {
        name: Reader(modules[name], layers[name], seen[name])  # pyright: ignore[reportArgumentType] - only such layers are watched
        for name in layers
        if name in seen
    }


def _inputs_of(
    model: nn.Module, modules: Mapping[str, nn.Module], inputs: ExampleInputs
) -> dict[str, Tensor]:
    seen: dict[str, Tensor] = {}
    with ExitStack() as hooks:
        for name, module in modules.items():
            hooks.enter_context(_note(seen, name, module))
        outputs(model, inputs)
    return seen


def _note(seen: dict[str, Tensor], name: str, module: nn.Module) -> RemovableHandle:
    def hook(
        _module: nn.Module, args: tuple[Tensor, ...], named: Mapping[str, Tensor]
    ) -> None:
        (given,) = (*args, *named.values())
        now = _constant_inputs(module, given)
        seen.update(_same({name: seen.get(name, now)}, {name: now}))

    return module.register_forward_pre_hook(hook, with_kwargs=True)


def _same(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What is the same in both, up to the rounding of an average; NaN elsewhere.

    Layers that only one of them has, or that were given more elements, are as in one.
    """
    found = dict(one)
    for name, before in one.items():
        now = other.get(name, before)
        if now.shape == before.shape:
            rounding = 100 * torch.finfo(before.dtype).eps
            is_same = torch.isclose(now, before, rtol=rounding, atol=0)
            found[name] = torch.where(is_same, before, torch.nan)
    return found


def _constant_inputs(layer: nn.Module, x: Tensor) -> Float[Tensor, " n"]:
    dim = -len(layer.kernel_size) - 1 if isinstance(layer, _ConvNd) else -1
    elements = x.detach().movedim(dim, 0).flatten(1)
    if not elements.numel():  # what a layer never saw is not known to be constant
        return elements.new_full((len(elements),), torch.nan)
    first = elements[:, 0]
    return torch.where((elements == first[:, None]).all(1), first, torch.nan)


@torch.no_grad()
def unread_zeros_(
    readers: Iterable[Reader], atom: Atom, units: Iterable[int]
) -> set[int]:
    """Stop reading units that are always zero; return them."""
    readers, zero = list(readers), set[int]()
    for unit in units:
        chosen = [(reader, reader.elements(atom, unit)) for reader in readers]
        if all(bool((reader.inputs[e] == 0).all()) for reader, e in chosen):
            for reader, elements in chosen:
                _columns(reader.layer)[:, elements] = 0
            zero.add(unit)
    return zero


def fold_into_bias_(
    readers: Iterable[Reader], atom: Atom, units: Iterable[int]
) -> set[int]:
    """Let biases say what the units say; return those that then say nothing."""
    readers, folded = list(readers), set[int]()
    if not all(_has_room(reader.layer) for reader in readers):
        return folded
    for unit in units:
        chosen = [(reader, reader.elements(atom, unit)) for reader in readers]
        if any(reader.inputs[elements].isnan().any() for reader, elements in chosen):
            continue
        for reader, elements in chosen:
            _fold_(reader, elements)
        folded.add(unit)
    return folded


@torch.no_grad()
def _fold_(reader: Reader, elements: Bool[Tensor, " n"]) -> None:
    layer, bias = reader.layer, reader.layer.bias
    assert bias is not None  # noqa: S101 - checked by the caller for all readers
    window = tuple(range(2, layer.weight.ndim))
    columns = layer.weight[:, elements]
    columns = columns.sum(window) if window else columns
    bias += columns @ reader.inputs[elements].to(columns)
    layer.weight[:, elements] = 0


def is_read(reader: Reader, atom: Atom, unit: int) -> bool:
    """Whether a layer still has weights for a unit that are not zero."""
    return bool(_columns(reader.layer)[:, reader.elements(atom, unit)].any())


def _columns(layer: nn.Linear | _ConvNd) -> Tensor:
    """The weight of a layer, its inputs along the second dimension."""
    weight = layer.weight.detach()
    is_transposed = isinstance(layer, _ConvNd) and layer.transposed
    return weight.transpose(0, 1) if is_transposed else weight


def _has_room(layer: nn.Linear | _ConvNd) -> bool:
    """Whether a constant input is the same as a bias for this layer."""
    if layer.bias is None:
        return False
    if isinstance(layer, nn.Linear):
        return True
    unpadded = layer.padding in ("valid", (0,) * len(layer.kernel_size))
    is_uniform = unpadded or layer.padding_mode != "zeros"
    return is_uniform and not layer.transposed


@torch.no_grad()
def merge_(readers: Iterable[Reader], atom: Atom, units: Iterable[int]) -> set[int]:
    """Let one constant unit say what all say; return the others."""
    readers, units = list(readers), list(units)
    strength = {unit: _weakest(readers, atom, unit) for unit in units}
    units = [unit for unit in units if strength[unit] > 0]
    if len(units) < 2:
        return set()
    carrier = max(units, key=strength.__getitem__)
    others = [unit for unit in units if unit != carrier]
    for reader in readers:
        kept = reader.elements(atom, carrier)
        for unit in others:
            elements = reader.elements(atom, unit)
            weight = _columns(reader.layer)
            ratio = (reader.inputs[elements] / reader.inputs[kept]).to(weight)
            ratio = ratio.view(-1, *(1,) * (weight.ndim - 2))
            weight[:, kept] += weight[:, elements] * ratio
            weight[:, elements] = 0
    return set(others)


def _weakest(readers: Iterable[Reader], atom: Atom, unit: int) -> float:
    values = [reader.inputs[reader.elements(atom, unit)].abs() for reader in readers]
    return min(float(value.min().nan_to_num(0.0)) for value in values)

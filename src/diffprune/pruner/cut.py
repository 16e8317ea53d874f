"""One removal in a model that is being trained: all of it, or nothing.

Knows models, gates and optimizers as holders of tensors, not what they are for.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from diffprune._typing import Bool
from diffprune.errors import ArgumentError, RemovalError
from diffprune.graph import Groups, PruneGroup
from diffprune.graph.axes import Atom, atoms, count, size
from diffprune.graph.call import Axes
from diffprune.penalty import named_gates
from diffprune.surgery.apply import named_tensors
from diffprune.surgery.compare import largest_gap, tolerance
from diffprune.surgery.optimizer import Move, check_can_follow
from diffprune.surgery.plan import Certificate, Plan

Units = Mapping[Atom, Bool[Tensor, " units"]]


@dataclass(frozen=True)
class Snapshot:
    """Every tensor and width of some models as it was, by reference."""

    states: Sequence["_State"]
    sizes: Mapping[Atom, int]

    @classmethod
    def of(cls, models: Sequence[nn.Module], resized: Iterable[Atom]) -> "Snapshot":
        """Note what a cut may change; nothing is copied."""
        modules = dict.fromkeys(m for model in models for m in model.modules())
        sizes = {atom: atom.size for atom in resized}
        return cls([_State.of(module) for module in modules], sizes)

    def restore_(self) -> None:
        """Put everything back."""
        for state in self.states:
            state.restore_()
        for atom, length in self.sizes.items():
            atom.size = length


@dataclass(frozen=True)
class _State:
    module: nn.Module
    parameters: Mapping[str, nn.Parameter | None]
    buffers: Mapping[str, Tensor | None]
    numbers: Mapping[str, int]

    @classmethod
    def of(cls, module: nn.Module) -> "_State":
        numbers = {k: v for k, v in vars(module).items() if type(v) is int}
        parameters, buffers = module._parameters, module._buffers  # noqa: SLF001 - by reference
        return cls(module, dict(parameters), dict(buffers), numbers)

    def restore_(self) -> None:
        vars(self.module).update(self.numbers)
        self.module._buffers.update(self.buffers)  # noqa: SLF001 - None is allowed here
        for name, parameter in self.parameters.items():
            # Through the module: recurrent layers keep a second list of weights.
            setattr(self.module, name, parameter)


def resize_(groups: Groups, kept: Units) -> Groups:
    """Groups of the smaller model: the same atoms, now with fewer units each."""
    for atom, units in kept.items():
        atom.size = int(units.sum())
    products: dict[Atom, list[Axes]] = {}
    for axes in groups.products:
        for atom in {atom for axis in axes for atom in atoms(axis)}:
            products.setdefault(atom, []).append(axes)
    return replace(
        groups, groups=tuple(_resized(groups, group, products) for group in groups)
    )


def _resized(
    groups: Groups, group: PruneGroup, products: Mapping[Atom, Sequence[Axes]]
) -> PruneGroup:
    named = {place.tensor for place in group.axes if place.is_parameter}
    values = {groups.solution.tensors[name]: groups.tensors[name] for name in named}
    return replace(
        group,
        size=group.atom.size,
        parameters=sum(_per_unit(axes, group.atom) for axes in values.values()),
        macs=sum(_per_unit(axes, group.atom) for axes in products.get(group.atom, ())),
    )


def _per_unit(axes: Axes, atom: Atom) -> int:
    everything = tuple(factor for axis in axes for factor in axis)
    fewer = count(everything, {atom: atom.size - 1})
    return int(count(everything, {}) - fewer)


def check_unchanged(model: nn.Module, groups: Groups) -> None:
    """Refuse a model whose tensors are not those the groups were found in."""
    tensors = named_tensors(model)
    gates = tuple(f"{name}." for name in named_gates(model))
    for name, axes in groups.tensors.items():
        if name.startswith(gates):
            continue
        expected = tuple(map(size, axes))
        if name not in tensors or tuple(tensors[name].shape) != expected:
            now = tuple(tensors[name].shape) if name in tensors else "gone"
            raise ArgumentError(
                f"`{name}` had shape {expected} when the pruner last saw it and is now "
                f"{now}. Change the model before making the pruner, not after."
            )


def units_of(groups: Groups, plan: Plan) -> dict[Atom, Bool[Tensor, " units"]]:
    """Which units of every group a plan keeps."""
    found: dict[Atom, Tensor] = {}
    for name in plan.kept:
        groups[name]  # raises, with the names there are, if there is no such group
    for group in groups:
        kept = plan.kept.get(group.name, range(group.size))
        found[group.atom] = as_mask(kept, group.size)
    return found


def as_mask(kept: Iterable[int], length: int) -> Bool[Tensor, " units"]:
    """True at these indices."""
    units = torch.zeros(length, dtype=torch.bool)
    units[list(kept)] = True
    return units


def certificate(before: Sequence[Tensor], after: Sequence[Tensor]) -> Certificate:
    """Compare what a model returned before and after a cut.

    Raises:
        RemovalError: If that is not the same.
    """
    gap = largest_gap(list(before), list(after))
    dtype = before[0].dtype
    found = Certificate(*gap, str(dtype).removeprefix("torch."))
    if gap.relative > tolerance(dtype):
        raise RemovalError(
            f"a removal would have changed what the model computes: {found}. Model, "
            "gates and optimizer are as they were before it."
        )
    return found


def moves(
    before: Mapping[str, Tensor], model: nn.Module, plan: Plan
) -> list[Move]:
    """What took the place of every parameter that a plan cut."""
    after = named_tensors(model)
    found: dict[Tensor, Move] = {}
    for name, dims in plan.tensors.items():
        old, new = before[name], after[name]
        if isinstance(old, nn.Parameter) and isinstance(new, nn.Parameter):
            found[old] = Move(old, new, dims)
    return list(found.values())


def check_optimizer(
    optimizer: Optimizer, before: Mapping[str, Tensor], names: Sequence[str]
) -> None:
    """Refuse an optimizer that could not follow, while nothing has changed."""
    cut = [(name, before[name]) for name in names]
    check_can_follow(
        optimizer, [(name, p) for name, p in cut if isinstance(p, nn.Parameter)]
    )


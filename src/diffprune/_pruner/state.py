"""Read the saved state of a pruner, wherever it comes from; changes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from diffprune._core.arguments import count
from diffprune._core.types import Float, Int
from diffprune._graph import Atom, Groups, PruneGroup
from diffprune._pruner.gated_model import RemovalRecord
from diffprune._pruner.placement import Keep
from diffprune._surgery.compare import Certificate
from diffprune._surgery.plan import Plan
from diffprune.errors import ArgumentError


@dataclass(frozen=True)
class SavedRun:
    """A state that fits: what to keep, and what had happened.

    Attributes:
        gates: By gate, the units that it had.
        atoms: Units of the model that were left.
        looks: How often in a row each unit was found closed, by gate.
        squares: What units were worth, by gate: running squares of gradients.
        steps: Steps the run had made.
        history: Its removals.
        certificate: Of the last one, if there was any.
    """

    gates: Mapping[str, Keep]
    atoms: Mapping[Atom, Keep]
    looks: Mapping[str, Int[Tensor, " units"]]
    squares: Mapping[str, Float[Tensor, " units"]]
    steps: int
    history: Sequence[RemovalRecord]
    certificate: Certificate | None


def read_state(
    state: Mapping[str, Any], groups: Groups, units: Mapping[str, PruneGroup]
) -> SavedRun:
    """Check a state against a fresh model.

    Args:
        state: What `Pruner.state_dict` returned.
        groups: The groups of the fresh model.
        units: What each of its gates decides about.

    Raises:
        ArgumentError: If it is damaged, or that of another model.
    """
    try:
        return _read(state, groups, units)
    except (
        AttributeError, LookupError, RuntimeError, TypeError, ValueError
    ) as error:  # fmt: skip
        raise ArgumentError(
            f"this state is damaged, or that of another model: {error}\n"
            "Load it into a pruner made with the same model and arguments."
        ) from error


def _read(
    state: Mapping[str, Any], groups: Groups, units: Mapping[str, PruneGroup]
) -> SavedRun:
    plan, kept, present = Plan.from_json(state["plan"]), state["kept"], state["present"]
    sizes = {name: unit.size for name, unit in units.items()}
    if state["units"] != sizes or set(kept) != set(sizes):
        raise ArgumentError(
            f"it has the gates {state['units']}, this pruner has {sizes}."
        )
    for name in plan.kept:
        groups[name]  # raises, with the names there are, if there is no such group
    gates = {name: as_mask(kept[name], size) for name, size in sizes.items()}
    atoms = {
        group.atom: as_mask(plan.kept[group.name], group.size)
        if group.name in plan.kept
        else torch.ones(group.size, dtype=torch.bool)
        for group in groups
    }
    for name, unit in units.items():
        left = torch.as_tensor(kept[name])[_indices(present[name], len(kept[name]))]
        atoms[unit.atom] = as_mask(left, unit.size)
    looks = {name: torch.as_tensor(state["looks"][name]) for name in sizes}
    for name, size in sizes.items():
        if looks[name].shape != (size,) or looks[name].is_floating_point():
            raise ArgumentError(f"it counts other units than the {size} of `{name}`.")
    squares = {name: torch.as_tensor(state["squares"][name]) for name in sizes}
    for name in sizes:
        is_whole = squares[name].shape == (len(kept[name]),)
        if not is_whole or squares[name].is_complex() or (squares[name] < 0).any():
            raise ArgumentError(f"it knows other squares than those of `{name}`.")
    history = [RemovalRecord.from_dict(record) for record in state["history"]]
    steps = count("steps", state["steps"], least=0)
    return SavedRun(gates, atoms, looks, squares, steps, history, plan.certificate)


def as_mask(kept: Sequence[int] | Int[Tensor, " kept"], length: int) -> Keep:
    """True at these indices."""
    mask = torch.zeros(length, dtype=torch.bool)
    return mask.index_fill(0, _indices(kept, length), value=True)


def _indices(
    kept: Sequence[int] | Int[Tensor, " kept"], length: int
) -> Int[Tensor, " kept"]:
    found = torch.as_tensor(kept)
    is_whole = found.dtype in (torch.int64, torch.int32) and found.ndim == 1
    if not is_whole or not len(found) or found.min() < 0 or found.max() >= length:
        raise ArgumentError(f"it keeps other units than the {length} there are.")
    return found

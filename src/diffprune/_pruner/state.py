"""Read the saved state of a pruner, wherever it comes from. Changes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from diffprune._core.types import Bool, Int
from diffprune._graph import Groups, PruneGroup
from diffprune._graph.axes import Atom
from diffprune._pruner.history import Shrinkage
from diffprune._surgery.plan import Plan
from diffprune.errors import ArgumentError

Units = Bool[Tensor, " units"]


@dataclass(frozen=True)
class Saved:
    """A state that fits: what to cut, and what had happened.

    Attributes:
        needed: Units that are left, per atom.
        closed: Units that the gates have lost, by gate.
        looks: How often in a row each unit that is left was found closed, by gate.
        steps: Steps the run had made.
        history: Its removals.
    """

    needed: Mapping[Atom, Units]
    closed: Mapping[str, Units]
    looks: Mapping[str, Int[Tensor, " units"]]
    steps: int
    history: Sequence[Shrinkage]


def read_state(
    state: Mapping[str, Any], groups: Groups, gates: Mapping[str, PruneGroup]
) -> Saved:
    """Check a state against the groups and gates of a fresh model.

    Raises:
        ArgumentError: If it is damaged, or that of another model.
    """
    try:
        return _read(state, groups, gates)
    except (ArgumentError, AttributeError, IndexError, KeyError, TypeError) as error:
        raise ArgumentError(
            f"this state is damaged, or that of another model: {error}\n"
            "Load it into a pruner made with the same model and arguments."
        ) from error


def _read(
    state: Mapping[str, Any], groups: Groups, gates: Mapping[str, PruneGroup]
) -> Saved:
    plan, saved = Plan.from_json(state["plan"]), state["gates"]
    sizes = {name: unit.size for name, unit in gates.items()}
    if state["units"] != sizes or set(saved) != set(sizes):
        raise ArgumentError(
            f"it has the gates {state['units']}, this pruner has {sizes}."
        )
    for name in plan.kept:
        groups[name]  # raises, with the names there are, if there is no such group
    needed = {
        group.atom: as_mask(plan.kept.get(group.name, range(group.size)), group.size)
        for group in groups
    }
    closed = dict[str, Units]()
    for name, unit in gates.items():
        kept, present = saved[name]
        closed[name] = ~as_mask(kept, unit.size)
        needed[unit.atom] = as_mask([kept[i] for i in present], unit.size)
    looks = {name: torch.tensor(state["looks"][name]) for name in gates}
    for name in gates:
        if looks[name].shape != (len(saved[name][0]),):
            raise ArgumentError(f"it counts {len(looks[name])} units for `{name}`.")
    history = [Shrinkage.from_dict(record) for record in state["history"]]
    return Saved(needed, closed, looks, int(state["steps"]), history)


def as_mask(kept: Sequence[int], length: int) -> Units:
    """True at these indices."""
    if not kept or min(kept) < 0 or max(kept) >= length:
        raise ArgumentError(f"it keeps other units than the {length} there are.")
    units = torch.zeros(length, dtype=torch.bool)
    units[list(kept)] = True
    return units

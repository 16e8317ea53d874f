"""What users ask a pruner for, checked and turned into gates. Knows no training."""

import fnmatch
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from torch import nn

from diffprune._graph import Groups, PruneGroup
from diffprune._graph.trace import check_plain
from diffprune._pruner.strengths import Strength, check_patterns, strength_of
from diffprune.errors import ArgumentError
from diffprune.gates import Gate

MakeGate: TypeAlias = Callable[[PruneGroup], Gate]
Gates: TypeAlias = MakeGate | Mapping[str, MakeGate]
Schedule: TypeAlias = int | Callable[[int], bool]
MARK: Final = "_diffprune_has_pruner"


def default_gate(group: PruneGroup) -> Gate:
    """The paper's gate: independent units, no noise."""
    return Gate(group.size)


def make_gates(
    model: nn.Module, groups: Groups, strength: Strength, gate: Gates
) -> dict[str, Gate]:
    """A gate for each group that has a strength, like the model's parameters.

    Raises:
        UnknownNameError: If a pattern matches no group.
        ArgumentError: If there is nothing to gate.
    """
    names = [group.name for group in groups]
    check_patterns("strength", strength, names)
    check_patterns("gate", gate, names)
    chosen = [group for group in groups if strength_of(strength, group) is not None]
    if not chosen:
        raise ArgumentError(
            "nothing in this model can be removed:\n"
            + "\n".join(f"  {axis}" for axis in groups.frozen)
        )
    like = next(p for p in model.parameters() if p.is_floating_point())
    made = {group.name: _maker(gate, group)(group) for group in chosen}
    return {name: gate.to(like.device, like.dtype) for name, gate in made.items()}


def _maker(gate: Gates, group: PruneGroup) -> MakeGate:
    if not isinstance(gate, Mapping):
        return gate
    patterns = [p for p in gate if fnmatch.fnmatchcase(group.name, p)]
    return gate[patterns[0]] if patterns else default_gate


def check_options(
    model: nn.Module, schedule: Schedule, reopen: float, patience: int, round_to: int
) -> None:
    """Refuse models that have a pruner, and numbers that cannot be meant.

    Raises:
        ArgumentError: If there are such.
    """
    check_plain(model)
    if any(MARK in vars(module) for module in model.modules()):
        raise ArgumentError(
            "this model already has a pruner. Call its `finalize()` first, or start "
            "again from a fresh model."
        )
    if not callable(schedule) and schedule < 1:
        raise ArgumentError(f"schedule must be at least one step, got {schedule}.")
    if round_to < 1:
        raise ArgumentError(f"round_to must be at least 1, got {round_to}.")
    if patience < 1:
        raise ArgumentError(f"patience must be at least one look, got {patience}.")
    if not 0 <= reopen <= 0.5:
        raise ArgumentError(
            f"reopen is a probability of at most 1/2, got {reopen}: a unit that is "
            "more likely open than closed is open."
        )


def check_placed(gate: Gates, strength: Strength, units: Mapping[str, Any]) -> None:
    """Refuse options that gates in the model itself would ignore.

    Raises:
        ArgumentError: If gates are to be made although the model has its own.
        UnknownNameError: If a pattern matches no gate.
    """
    if gate is not default_gate:
        raise ArgumentError(
            "`gate=` makes gates for a model without any, and this model has its own: "
            f"{', '.join(f'`{name}`' for name in units)}.\n"
            "Leave `gate=` out, or take those out of the model."
        )
    check_patterns("strength", strength, list(units))

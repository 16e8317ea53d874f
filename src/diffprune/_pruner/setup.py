"""Turn the arguments of a `Pruner` into a gated model, strengths and a controller."""

import fnmatch
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import torch
from torch import nn

from diffprune._budget import Budget, Controller
from diffprune._budget.limits import Measured
from diffprune._choice import Leaving
from diffprune._core.modules import check_has_no_pruner
from diffprune._core.types import Count
from diffprune._core.user_warnings import warn
from diffprune._costs.latency import measure_in_turns
from diffprune._graph import (
    ExampleInputs,
    Groups,
    Heads,
    Op,
    PruneGroup,
    Rule,
    check_plain,
    find_groups,
)
from diffprune._pruner.added_gates import AddedGates, attach_
from diffprune._pruner.gate_contract import (
    check_can_stand,
    check_drawn_for_all,
    check_gates,
)
from diffprune._pruner.gate_links import GateRule
from diffprune._pruner.gated_model import GatedModel
from diffprune._pruner.placement import Keep
from diffprune._pruner.strengths import (
    Scheduled,
    Strength,
    check_patterns,
    strength_of,
)
from diffprune._pruner.user_gates import UserGates, standing_still
from diffprune.errors import ArgumentError
from diffprune.gates import Gate, GateLike
from diffprune.gates.penalty import first_names, named_gates

ModuleT = TypeVar("ModuleT", bound=nn.Module)
MakeGate: TypeAlias = Callable[[PruneGroup], GateLike]
Gates: TypeAlias = MakeGate | Mapping[str, MakeGate]
Budgets: TypeAlias = Budget | Sequence[Budget]
Schedule: TypeAlias = Count | Callable[[int], bool]

REMOVE_EVERY: Final = 100
REOPEN: Final = 0.05
PATIENCE: Final = 30


def default_gate(group: PruneGroup) -> Gate:
    """The paper's gate: independent units, no noise."""
    return Gate(group.size)


def make_gated_model_(  # noqa: PLR0913 - the options of `Pruner`
    model: ModuleT,
    example_inputs: ExampleInputs,
    *,
    strength: Strength | None,
    gate: Gates,
    freeze: Sequence[str],
    heads: Heads,
    rules: Mapping[Op, Rule] | None,
    tie: Sequence[Sequence[str]],
    round_to: int,
) -> GatedModel[ModuleT]:
    """Find what can be removed from a model, and gate it in place if it has no gates.

    The arguments are those of `Pruner`. On an error the model is as it was.
    """

    def find(
        model: nn.Module, inputs: ExampleInputs, known: Mapping[Op, Rule]
    ) -> Groups:
        all_rules = {**(rules or {}), **known}
        return find_groups(
            model, inputs, freeze=freeze, heads=heads, rules=all_rules, tie=tie
        )

    check_can_stand(model)
    if placed := named_gates(model):
        indexed = [name for name, own in placed.items() if own.index is not None]
        rule = GateRule(first_names(model), indexed)
        rules_of_gates: dict[Op, Rule] = {torch.ops.diffprune.gate: rule.as_rule()}
        check_placed(gate, strength, list(placed))
        check_gates(model, placed)
        with standing_still(placed.values()):
            groups = find(model, example_inputs, rules_of_gates)
        _warn_of_idle(placed.keys() - rule.seen)
        by_user = UserGates(model, rule, find)
        return GatedModel(model, example_inputs, groups, by_user, round_to)
    groups = find(model, example_inputs, {})
    made = make_gates(model, groups, strength, gate)
    attach_(model, groups, made)
    added = AddedGates(made)
    return GatedModel(model, example_inputs, groups, added, round_to)


def _warn_of_idle(names: Collection[str]) -> None:
    """Say so if gates stand in a model and multiply nothing."""
    if names:
        warn(
            f"gate `{min(names)}` is not called in the forward pass of this model, so "
            "nothing leaves through it.\nCall it there: `x = self.gate(x)`. A gate "
            "whose class has a `forward` of its own cannot be followed.",
        )


def make_gates(
    model: nn.Module, groups: Groups, strength: Strength | None, gate: Gates
) -> dict[str, GateLike]:
    """A gate for each group that has a strength, like the model's parameters.

    Without any strength, which a budget finds itself, all groups have a gate.

    Raises:
        UnknownNameError: If a pattern matches no group.
        ArgumentError: If there is nothing to gate, or something else than a gate was
            made.
    """
    check_patterns("strength", strength, list(groups.sizes))
    check_patterns("gate", gate, list(groups.sizes))
    chosen = [
        g for g in groups if strength is None or strength_of(strength, g) is not None
    ]
    if not chosen:
        raise ArgumentError(
            "nothing in this model can be removed:\n"
            + "\n".join(f"  {axis}" for axis in groups.frozen)
        )
    like = next(
        p for p in model.parameters() if p.is_floating_point() or p.is_complex()
    )
    made = {g.name: _make_gate(_maker(gate, g), g, like) for g in chosen}
    _check_distinct(made)
    check_gates(model, made)
    return made


def _check_distinct(made: Mapping[str, GateLike]) -> None:
    first = dict[int, str]()
    for name, gate in made.items():
        other = first.setdefault(id(gate), name)
        if other != name:
            raise ArgumentError(
                f"gate= returned one gate for `{other}` and `{name}`, and each group "
                "needs its own.\nType `gate=lambda group: dp.Gate(group.size)`."
            )


def _make_gate(make: MakeGate, group: PruneGroup, like: nn.Parameter) -> GateLike:
    made = _called(make, group)
    if not isinstance(made, GateLike) or not isinstance(made, nn.Module):
        raise ArgumentError(
            f"gate= made a {type(made).__name__} for `{group.name}`, and a gate is a "
            "module with the members of `diffprune.gates.GateLike`."
        )
    if made.size != group.size:
        raise ArgumentError(
            f"gate= made a gate of {made.size} units for `{group.name}`, which has "
            f"{group.size}.\nType `gate=lambda group: dp.Gate(group.size)`."
        )
    check_drawn_for_all(group.name, made)
    if any(p.is_meta for p in made.parameters()):
        raise ArgumentError(
            f"gate= made a gate for `{group.name}` on the meta device, which holds no "
            "numbers."
        )
    return made.to(like.device, like.dtype.to_real())


def _called(make: MakeGate, group: PruneGroup) -> Any:  # noqa: ANN401 - users are not checked
    try:
        return make(group)
    except Exception as error:
        raise ArgumentError(
            f"gate= is called with a group, here `{group.name}` of {group.size} units, "
            f"and failed: {type(error).__name__}: {error}\nType `gate=lambda group: "
            "dp.Gate(group.size)`."
        ) from error


def _maker(gate: Gates, group: PruneGroup) -> MakeGate:
    if not isinstance(gate, Mapping):
        return gate
    patterns = [p for p in gate if fnmatch.fnmatchcase(group.name, p)]
    return gate[patterns[0]] if patterns else default_gate


def make_controller(
    budget: Budgets,
    gated: GatedModel[Any],
    orders: Callable[[], Mapping[str, Leaving]],
    round_to: int,
) -> Controller:
    """Steer a gated model, of which nothing was removed yet, to its budgets.

    Args:
        budget: What to reach.
        gated: The model.
        orders: Says in which order the units of each gate should leave.
        round_to: Widths are multiples of this.

    Raises:
        ArgumentError: If a budget cannot be met.
    """
    budgets = [budget] if isinstance(budget, Budget) else list(budget)
    gates = {n: gate for n, gate in gated.gates.items() if isinstance(gate, Gate)}
    if others := gated.gates.keys() - gates:
        raise ArgumentError(
            f"the gate of `{min(others)}` is not a `dp.Gate`, and a budget can steer "
            "no other.\nUse `strength=` for it."
        )
    options = gates, orders, round_to, gated.read
    if all(one.latency is None for one in budgets):
        return Controller(budgets, gated.network(), *options)
    timed = _Timed(gated, gated.without_gates())
    return Controller(budgets, gated.network(), *options, timed)


@dataclass(frozen=True)
class _Timed:
    """How long a model takes with fewer units, beside the whole one."""

    gated: GatedModel[Any]
    whole: nn.Module

    def __call__(self, keep: Mapping[str, Keep]) -> dict[str, Measured]:
        """The latency with these units of each gate."""
        models = [self.gated.without_gates(keep), self.whole]
        times = measure_in_turns(models, self.gated.example_inputs)
        return {"latency": Measured(*times)}


def check_options(
    strength: Strength | Scheduled | None,
    budget: Budgets | None,
    on_budget: object,
    steps: int | None = None,
    **when: object,
) -> None:
    """Refuse combinations of options that mean nothing.

    Args:
        strength: How hard units are pushed to close.
        budget: What the model may cost.
        on_budget: What is called when a budget is met.
        steps: How long a strength takes that is a function of progress.
        **when: Options of removals that a budget decides itself; None if not given.

    Raises:
        ArgumentError: If there is not exactly one of strength and budget, or an option
            would be ignored.
    """
    if strength is None and budget is None:
        raise ArgumentError(
            "a pruner has to know how hard to push: give it `strength=` or `budget=`.\n"
            "Type `strength=1e-4` to start with, or `budget=dp.Budget(macs=0.3, "
            "steps=...)`."
        )
    if budget is not None and strength is not None:
        raise ArgumentError(
            "a budget finds its own strengths: leave `strength=` out.\n"
            "To keep layers whole, type `freeze=[...]`."
        )
    if budget is not None and not isinstance(budget, Budget) and not list(budget):
        raise ArgumentError("budget=[] asks for nothing: leave it out.")
    if budget is not None and steps is not None:
        raise ArgumentError(
            "a budget has its own steps: type `budget=dp.Budget(..., "
            f"steps={steps})` and leave `steps=` out."
        )
    given = [name for name, value in when.items() if value is not None]
    if budget is not None and given:
        raise ArgumentError(
            f"a budget decides itself when units go: leave `{given[0]}=` out, or use "
            "`strength=` instead of `budget=`."
        )
    if budget is None and on_budget is not None:
        raise ArgumentError(
            "`on_budget=` is called when a budget is met, and there is none: leave it "
            "out, or give a `budget=`."
        )


def check_model(model: nn.Module) -> None:
    """Refuse a model that has a pruner, or cannot have one.

    Raises:
        ArgumentError: If it is such a model.
    """
    check_plain(model)
    if model._compiled_call_impl is not None:  # noqa: SLF001 - nothing public tells
        raise ArgumentError(
            "`model.compile()` was called before the pruner was made, and its code "
            "knows no gates.\nCompile the model after that."
        )
    check_has_no_pruner(model)


def check_reopen(reopen: float) -> None:
    """Refuse a probability of units to be open that are closed.

    Raises:
        ArgumentError: If it is none.
    """
    if not 0 <= reopen <= 0.5:
        raise ArgumentError(
            f"reopen is a probability of at most 1/2, got {reopen}: a unit that is "
            "more likely open than closed is open."
        )


def check_placed(gate: Gates, strength: Strength | None, names: Sequence[str]) -> None:
    """Refuse options that gates in the model itself would ignore.

    Raises:
        ArgumentError: If gates are to be made although the model has its own.
        UnknownNameError: If a pattern matches no gate.
    """
    if gate is not default_gate:
        raise ArgumentError(
            "`gate=` makes gates for a model without any, and this model has its own: "
            f"{', '.join(f'`{name}`' for name in names)}.\n"
            "Leave `gate=` out, or take those out of the model."
        )
    check_patterns("strength", strength, names)


def check_same_budget(state: Any, controller: Controller | None) -> None:  # noqa: ANN401 - it may be damaged
    """Refuse the state of a run with a budget for one without, and the reverse.

    Raises:
        ArgumentError: If only one of them has a budget, or they have different ones.
    """
    if (state is None) != (controller is None):
        has, lacks = ("pruner", "state") if state is None else ("state", "pruner")
        raise ArgumentError(
            f"this {has} has a budget and the {lacks} has none.\n"
            "Load a state into a pruner made with the same arguments."
        )
    if controller is not None:
        controller.check_state(state)

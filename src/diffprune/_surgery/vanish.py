"""Let branches that add nothing disappear. Knows plans, not how to find branches."""

from collections.abc import Mapping
from dataclasses import replace

from torch import nn

from diffprune._graph import Groups
from diffprune._graph.trace import ExampleInputs
from diffprune._graph.zeros import Silencer
from diffprune._surgery.apply import apply_plan
from diffprune._surgery.bias_transfer import hand_back_
from diffprune._surgery.dead_units import zero_slices
from diffprune._surgery.equivalence import certify
from diffprune._surgery.plan import Plan
from diffprune._surgery.replacement_modules import Stub
from diffprune._surgery.residual_branches import silent_branches
from diffprune.errors import RemovalError


def vanish_(
    model: nn.Module, groups: Groups, plan: Plan, inputs: ExampleInputs
) -> Plan:
    """Plan to let silent branches disappear, too, where that changes nothing.

    Args:
        model: Zero where it is dead. Biases may move from layer to layer in it.
        groups: Its groups.
        plan: What is removed anyway; it keeps at least one unit of each group.
        inputs: As for `find_groups`.
    """
    hand_back_(model, Silencer(groups.solution, zero_slices(model)))
    silencer = Silencer(groups.solution, zero_slices(model))
    small = apply_plan(model, plan)
    branches = silent_branches(silencer, small, inputs)
    if not branches:
        return plan
    together = {k: v for b in branches for k, v in b.stubs(b.ends[0]).items()}
    one_by_one = [branch.stubs(end) for branch in branches for end in branch.ends]
    for stubs in (together, *one_by_one):
        if not stubs.keys() <= plan.stubs.keys():
            trial = _without(groups, plan, stubs)
            if _agree(small, apply_plan(model, trial), inputs):
                plan = trial
    return plan


def _without(groups: Groups, plan: Plan, stubs: Mapping[str, Stub]) -> Plan:
    """The plan with these stubs; groups that live in nothing else keep no unit."""
    inside = tuple(f"{path}." for path in (*plan.stubs, *stubs))
    gone = {
        group.name: ()
        for group in groups
        if all(place.tensor.startswith(inside) for place in group.axes)
    }
    return replace(plan.without(stubs), kept={**plan.kept, **gone})


def _agree(one: nn.Module, other: nn.Module, inputs: ExampleInputs) -> bool:
    try:
        certify(one, other, inputs)
    except RemovalError:
        return False
    return True

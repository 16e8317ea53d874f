"""From a plain model to a gated one, with gates of its own or new ones."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

import torch
from torch import nn

from diffprune._graph import Groups, find_groups
from diffprune._graph.ops import Op, Rule
from diffprune._graph.trace import ExampleInputs
from diffprune._pruner.added_gates import Attached
from diffprune._pruner.gated_model import Body
from diffprune._pruner.options import Gates, check_placed, make_gates
from diffprune._pruner.strengths import Strength
from diffprune._pruner.user_gates import GateRule, Placed
from diffprune.gates.penalty import named_gates

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def begin_(
    model: ModuleT,
    example_inputs: ExampleInputs,
    *,
    strength: Strength,
    gate: Gates,
    freeze: Sequence[str],
    heads: Literal["both", "whole", "inside"],
    rules: Mapping[Op, Rule] | None,
) -> Body[ModuleT]:
    """Find what can be removed from a model, and gate it in place if it has no gates.

    The arguments are those of `Pruner`.
    """

    def find(
        model: nn.Module, inputs: ExampleInputs, known: Mapping[Op, Rule]
    ) -> Groups:
        all_rules = {**(rules or {}), **known}
        return find_groups(model, inputs, freeze=freeze, heads=heads, rules=all_rules)

    if named_gates(model):
        rule = GateRule()
        groups = find(model, example_inputs, {torch.ops.diffprune.gate: rule})
        placed = Placed(rule, find)
        check_placed(gate, strength, placed.units(model, groups))
        return Body(model, example_inputs, groups, placed)
    groups = find(model, example_inputs, {})
    made = make_gates(model, groups, strength, gate)
    attached = Attached(model, groups, made)
    return Body(model, example_inputs, groups, attached)

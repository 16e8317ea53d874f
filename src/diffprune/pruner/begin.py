"""From a plain model to a gated one, with gates of its own or new ones."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

import torch
from torch import nn

from diffprune.graph import Groups, find_groups
from diffprune.graph.rules import Op, Rule
from diffprune.graph.trace import ExampleInputs
from diffprune.penalty import named_gates
from diffprune.pruner.attach import Attached
from diffprune.pruner.body import Body
from diffprune.pruner.options import Gates, check_placed, make_gates
from diffprune.pruner.placed import GateRule, Placed
from diffprune.pruner.strengths import Strength

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
        placed = Placed(model, groups, rule, find)
        check_placed(gate, strength, placed.units)
        return Body(model, example_inputs, groups, placed)
    groups = find(model, example_inputs, {})
    made = make_gates(model, groups, strength, gate)
    attached = Attached(model, groups, made)
    return Body(model, example_inputs, groups, attached)

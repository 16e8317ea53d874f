"""What a model with placed gates costs, as a function of their widths. No gradients.

Placed gates have units of their own on either side, so that residual streams can keep
different ones. Costs need one width per gate: here a gate passes its units on, and only
one that chooses among the elements of several units, behind a flattening, has its own.
Where nothing is left of a unit on one side, the truth is a little below that.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias, final

import torch
from torch import Tensor, nn

from diffprune._core.copying import copied
from diffprune._costs.network import Network
from diffprune._graph import (
    Atom,
    Axes,
    Axis,
    Call,
    ExampleInputs,
    Groups,
    Op,
    Rule,
    Value,
)
from diffprune._surgery.apply import replace_module_
from diffprune.errors import ArgumentError
from diffprune.gates import BaseGate
from diffprune.gates.multiply import multiply
from diffprune.gates.penalty import first_names, named_gates

FindGroups: TypeAlias = Callable[[nn.Module, ExampleInputs, Mapping[Op, Rule]], Groups]
"""`find_groups` with the user's options, and more rules."""


def placed_network(
    model: nn.Module,
    example_inputs: ExampleInputs,
    gates: Mapping[str, BaseGate],
    find: FindGroups,
) -> Network:
    """A gated model as costs see it; widths are those of the gates, in order.

    Raises:
        ArgumentError: If gates share their units, or decide about something else.
    """
    plain, rule = _without_gates(model), _Through(first_names(model))
    groups = find(plain, example_inputs, {torch.ops.diffprune.gate: rule})
    by_atom = {group.atom: group for group in groups}
    taken = dict[Atom, str]()
    for name in gates:
        axis = groups.solution.algebra.resolve(rule.units.get(name, ()))
        atom = axis[0] if len(axis) == 1 else None
        if not isinstance(atom, Atom) or atom not in by_atom:
            raise ArgumentError(
                f"what gate `{name}` closes cannot be removed, so no budget can count "
                "on it.\nUse `strength=` for this model."
            )
        if atom in taken:
            raise ArgumentError(
                f"gates `{taken[atom]}` and `{name}` decide about the same units, and "
                "a unit costs something until both have closed it: budgets need gates "
                "that decide alone.\nUse `strength=` for this model."
            )
        taken[atom] = name
    gated = [replace(by_atom[atom], name=name) for atom, name in taken.items()]
    return Network(plain, example_inputs, groups, gated)


class _Through:
    """A rule for the gate op: units pass, unless several dimensions were flattened.

    Args:
        names: What a gate is called, by every path that leads to it.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self.units: dict[str, Axis] = {}

    def __call__(self, call: Call, x: Value, values: Value, dim: int) -> Axes:
        dim %= len(x.axes)
        if values.shape != x.shape[dim : dim + 1]:
            return x.axes
        units = x.axes[dim]
        if len(call.algebra.resolve(units)) > 1:
            (units,) = call.fresh(x.shape[dim])
        gate = self._names.get(call.where.module, call.where.module)
        if gate in self.units:
            call.unify(units, self.units[gate])
        self.units[gate] = units
        return (*x.axes[:dim], units, *x.axes[dim + 1 :])


@final
class _Mark(nn.Module):
    """The place of a gate, without parameters that would count."""

    def __init__(self, gate: BaseGate) -> None:
        super().__init__()
        self.dim, self.index, self.values = gate.dim, gate.index, gate.values().detach()

    def forward(self, x: Tensor) -> Tensor:
        values = self.values if self.index is None else self.values[self.index]
        return multiply(x, values, self.dim)


def _without_gates(model: nn.Module) -> nn.Module:
    """A copy with marks in place of gates."""
    plain = copied(model)
    for gate in named_gates(plain).values():
        replace_module_(plain, gate, _Mark(gate))
    return plain

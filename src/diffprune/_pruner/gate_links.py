"""What a trace says about gates that users placed: where they are, what they need.

A placed gate reads one layout of units and writes another: what it closes is gone
behind it, and may still be needed before it, or be written again further on (residual
streams). Its input therefore keeps every unit that anything behind it keeps, and the
gate selects.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from diffprune._core.types import Int
from diffprune._graph import (
    Atom,
    Axes,
    Axis,
    Call,
    Groups,
    MaskT,
    OpRule,
    Spreading,
    Step,
    Value,
    Zeros,
    any_of,
    atoms,
    mask,
    unit_numbers,
)
from diffprune._pruner.placement import Keep
from diffprune._surgery.dead_units import dead_units

Inputs = Mapping[str, Int[Tensor, " width"] | None]
"""By gate, which elements of its input it reads; all if None."""


@dataclass(frozen=True, eq=False)
class Link:
    """A placed gate in a trace: what it reads, what it writes, along one dimension."""

    gate: str
    x: Value
    out: Value
    dim: int

    def __deepcopy__(self, memo: object) -> "Link":
        return self  # part of a trace, which is shared

    def before(self, groups: Groups) -> Axis:
        """What the gated dimension of the input is made of."""
        return groups.solution.algebra.resolve(self.x.axes[self.dim])

    def behind(self, groups: Groups) -> Axis:
        """What the gated dimension of the output is made of."""
        return groups.solution.algebra.resolve(self.out.axes[self.dim])

    def own_atom(self, groups: Groups) -> Atom | None:
        """The units behind the gate, if they are its own; None if they were divided."""
        return only_atom(self.behind(groups))


def only_atom(axis: Axis) -> Atom | None:
    """The one atom that an axis is made of; None if there are more."""
    return axis[0] if len(axis) == 1 and isinstance(axis[0], Atom) else None


class GateRule:
    """The rule for the gate op: the units behind a gate are its own.

    Args:
        names: What a gate is called, by every path that leads to it.
        indexed: Gates with an index of their own; what they cover is frozen.

    Attributes:
        links: Where gates are.
        seen: All gates that multiply something.
    """

    def __init__(self, names: Mapping[str, str], indexed: Collection[str] = ()) -> None:
        self._names, self._indexed = names, indexed
        self.links: list[Link] = []
        self.seen = set[str]()

    def __deepcopy__(self, memo: object) -> "GateRule":
        return self  # part of a trace, which is shared

    def __call__(self, call: Call, x: Value, values: Value, dim: int) -> Axes:
        """Give the output a dimension of its own, and remember both ends."""
        gate = self._names.get(call.where.module, call.where.module)
        self.seen.add(gate)
        dim %= len(x.axes)
        is_vector = values.shape == x.shape[dim : dim + 1]
        if not is_vector or gate in self._indexed:
            for axis in x.axes[dim:]:
                call.freeze(axis, "a gate with an index covers it")
            return x.axes
        (units,) = call.fresh(x.shape[dim])
        link = Link(gate, x, Value((*x.axes[:dim], units, *x.axes[dim + 1 :])), dim)
        for other in self.links:
            if other.gate == link.gate:
                call.unify(units, other.out.axes[other.dim])
                call.unify(x.axes[dim], other.x.axes[other.dim])
        self.links.append(link)
        return link.out.axes

    def as_rule(self) -> OpRule:
        """All that is known of the gate op: a unit is removed when its gate is zero."""
        return OpRule(axes=self, zeros=_zero_behind_gate)


def _zero_behind_gate(zeros: Zeros[MaskT], step: Step) -> Mapping[Atom, MaskT]:
    """Zero where the input is, and at all units behind the gate that are removed."""
    x = step.inputs[0]
    own = zeros.atoms(step.outputs[0]) - zeros.atoms(x)
    return any_of([zeros.of(x), {atom: zeros.full(atom) for atom in own}])


def needed_units(
    groups: Groups, rule: GateRule, keep: Mapping[str, Keep], inputs: Inputs
) -> dict[Atom, Keep]:
    """Units of every group that something may still read; the others can go.

    Args:
        groups: Of a model with placed gates.
        rule: The rule that found the gates.
        keep: By gate, which of the units behind it the gate lets through. Two gates
            may have the same units behind them, as where their outputs are added.
        inputs: For each gate, by name, which elements of its input it reads.
    """
    linked = {
        atom
        for link in rule.links
        for axis in (link.before(groups), link.behind(groups))
        for atom in groups.solution.free(axis)
    }
    whole = {group.atom: _all_units(group.atom) for group in groups}
    dead = dead_units(linked, _ClosedGates(groups, rule, keep, inputs))
    needed = {**whole, **{atom: ~units for atom, units in dead.items()}}
    _demand_all_(groups, rule, needed, inputs)
    for units in needed.values():
        if not units.any():  # a layer of no units does not run
            units[0] = True
    _demand_all_(groups, rule, needed, inputs)
    return needed


class _ClosedGates(Spreading[Tensor]):
    """Silence that starts in closed gates, and in nothing else.

    A gate is silent where it is closed, and where it has nothing to let through.
    """

    def __init__(
        self, groups: Groups, rule: GateRule, keep: Mapping[str, Keep], inputs: Inputs
    ) -> None:
        self._rule, self._keep, self._inputs = rule, keep, inputs
        self._links = {id(link.out.axes): link for link in rule.links}
        super().__init__(groups.solution, lambda *_: {}, _all_units)

    def _spread(self, step: Step) -> None:
        link = self._links.get(id(step.outputs[0].axes)) if step.outputs else None
        if step.rule.axes is not self._rule or link is None:
            super()._spread(step)
            return
        (output,) = step.outputs
        silent = dict(self.of(link.x))
        resolve = self.solution.algebra.resolve
        heard = {atom: ~units for atom, units in self.along(link.x, link.dim).items()}
        arrives = mask(resolve(link.x.axes[link.dim]), heard)
        own = resolve(output.axes[link.dim])
        if len(own) == 1 and isinstance(own[0], Atom):
            chosen = self._inputs[link.gate]
            arrives = arrives if chosen is None else arrives[chosen.cpu()]
            silent[own[0]] = ~(arrives & self._keep[link.gate])
        found = self.atoms(output)
        self._known[output] = {a: m for a, m in silent.items() if a in found}


def _all_units(atom: Atom) -> Keep:
    return torch.ones(atom.size, dtype=torch.bool)


def _demand_all_(
    groups: Groups, rule: GateRule, needed: dict[Atom, Keep], inputs: Inputs
) -> None:
    """Let every gate demand what it reads, until none demands anything new."""
    while sum(_demand_(groups, link, needed, inputs) for link in rule.links):
        pass


def _demand_(
    groups: Groups, link: Link, needed: dict[Atom, Keep], inputs: Inputs
) -> bool:
    """Need in front of a gate what is needed behind it; whether that was news."""
    news, axis = False, link.before(groups)
    read = mask(link.behind(groups), needed).nonzero().flatten()
    chosen = inputs[link.gate]
    read = read if chosen is None else chosen.cpu()[read]
    for atom in set(atoms(axis)) & needed.keys():
        numbers = unit_numbers(axis, atom)[read]
        demanded = torch.zeros(atom.size, dtype=torch.bool)
        demanded[numbers[numbers >= 0]] = True
        news |= bool((demanded & ~needed[atom]).any())
        needed[atom] = needed[atom] | demanded
    return news

"""Gates that users put into their models, as the paper does. Knows no optimizer.

A placed gate reads one layout of units and writes another: what it closes is gone
behind it, and may still be needed before it, or be written again further on (residual
streams). Its input therefore keeps every unit that anything behind it keeps, and the
gate selects.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias, final

import torch
from torch import Tensor, nn

from diffprune._core.types import Bool, Int
from diffprune._costs.network import Network
from diffprune._graph import Groups, PruneGroup
from diffprune._graph.axes import Atom, atoms, mask
from diffprune._graph.infer import Step
from diffprune._graph.rule_api import Axes, Call, Value
from diffprune._graph.silence import unit_numbers
from diffprune._graph.trace import ExampleInputs
from diffprune._graph.zeros import Spreading
from diffprune._pruner.added_gates import keep_
from diffprune._pruner.budget_view import FindGroups, placed_network
from diffprune._pruner.gate_absorption import absorb_
from diffprune._pruner.links import Link, axis_of
from diffprune._surgery.dead_units import dead_units
from diffprune.gates import Gate, fold_gates
from diffprune.gates.penalty import named_gates

Units: TypeAlias = Bool[Tensor, " units"]


class GateRule:
    """The rule for the gate op: the units behind a gate are its own."""

    def __init__(self) -> None:
        self.links: list[Link] = []

    def __call__(self, call: Call, x: Value, values: Value, dim: int) -> Axes:
        """Give the output a dimension of its own, and remember both ends."""
        dim %= len(x.axes)
        if values.shape != x.shape[dim : dim + 1]:
            for axis in x.axes[dim:]:
                call.freeze(axis, "a gate with an index covers it")
            return x.axes
        (units,) = call.fresh(x.shape[dim])
        link = Link(
            call.where.module, x, Value((*x.axes[:dim], units, *x.axes[dim + 1 :])), dim
        )
        for other in self.links:
            if other.gate == link.gate:
                call.unify(units, other.out.axes[other.dim])
                call.unify(x.axes[dim], other.x.axes[other.dim])
        self.links.append(link)
        return link.out.axes


class _Closed(Spreading[Tensor]):
    """Silence that starts in closed gates, and in nothing else.

    A gate is silent where it is closed, and where it has nothing to let through.
    """

    def __init__(
        self,
        groups: Groups,
        rule: GateRule,
        closed: Mapping[Atom, Units],
        places: Mapping[str, Int[Tensor, " n"] | None],
    ) -> None:
        self._rule, self._closed, self._places = rule, closed, places
        self._links = {id(link.out.axes): link for link in rule.links}
        super().__init__(groups.solution, lambda *_: {}, _all_units)

    def _spread(self, step: Step) -> None:
        link = self._links.get(id(step.outputs[0].axes)) if step.outputs else None
        if step.rule is not self._rule or link is None:
            super()._spread(step)
            return
        (output,) = step.outputs
        silent = dict(self.of(link.x))
        resolve = self.solution.algebra.resolve
        loud = {atom: ~units for atom, units in self.along(link.x, link.dim).items()}
        nothing = ~mask(resolve(link.x.axes[link.dim]), loud)
        chosen = self._places[link.gate]
        own = resolve(output.axes[link.dim])
        if len(own) == 1 and isinstance(own[0], Atom):
            arrives = nothing if chosen is None else nothing[chosen.cpu()]
            silent[own[0]] = arrives | self._closed.get(own[0], ~_all_units(own[0]))
        found = self.atoms(output)
        self._known[output] = {a: m for a, m in silent.items() if a in found}


def _all_units(atom: Atom) -> Units:
    return torch.ones(atom.size, dtype=torch.bool)


def needed_units(
    groups: Groups,
    rule: GateRule,
    closed: Mapping[Atom, Units],
    places: Mapping[str, Int[Tensor, " n"] | None],
) -> dict[Atom, Units]:
    """Units of every group that something may still read.

    Args:
        groups: Of a model with placed gates.
        rule: The rule that found the gates.
        closed: For each atom behind a gate, which of its units are closed for good.
        places: For each gate, by name, the places of its units in its input.
    """
    linked = {
        atom
        for link in rule.links
        for value in (link.x, link.out)
        for atom in groups.solution.free(value.axes[link.dim])
    }
    whole = {group.atom: _all_units(group.atom) for group in groups}
    unread = dead_units(linked, _Closed(groups, rule, closed, places))
    needed = {**whole, **{atom: ~units for atom, units in unread.items()}}
    _demand_all_(groups, rule, needed, places)
    for units in needed.values():
        if not units.any():  # a layer of no units does not run
            units[0] = True
    _demand_all_(groups, rule, needed, places)
    return needed


def _demand_all_(
    groups: Groups,
    rule: GateRule,
    needed: dict[Atom, Units],
    places: Mapping[str, Int[Tensor, " n"] | None],
) -> None:
    while _demand_(groups, rule, needed, places):
        pass


def _demand_(
    groups: Groups,
    rule: GateRule,
    needed: dict[Atom, Units],
    places: Mapping[str, Int[Tensor, " n"] | None],
) -> bool:
    """Need in front of every gate what is needed behind it; whether that was news."""
    news = False
    for link in rule.links:
        behind = mask(axis_of(groups, link.out, link.dim), needed)
        axis = axis_of(groups, link.x, link.dim)
        read, chosen = behind.nonzero().flatten(), places[link.gate]
        read = read if chosen is None else chosen.cpu()[read]
        for atom in set(atoms(axis)) & needed.keys():
            numbers = unit_numbers(axis, atom)[read]
            demanded = torch.zeros(atom.size, dtype=torch.bool)
            demanded[numbers[numbers >= 0]] = True
            news |= bool((demanded & ~needed[atom]).any())
            needed[atom] = needed[atom] | demanded
    return news


@final
class Placed:
    """Gates that the user put into a model."""

    def __init__(self, rule: GateRule, find: FindGroups) -> None:
        self._rule, self._find = rule, find
        self._links = {link.gate: link for link in rule.links}

    def units(self, model: nn.Module, groups: Groups) -> dict[str, PruneGroup]:
        """What each gate decides about, by its name, at its present size."""
        by_atom = {group.atom: group for group in groups}
        found = dict[str, PruneGroup]()
        for name, gate in self.gates(model).items():
            atom = self._own_atom(groups, name) or Atom(gate.size)
            own = PruneGroup(name, gate.size, (), 0, 0, atom)
            found[name] = replace(by_atom.get(atom, own), name=name)
        return found

    def gates(self, model: nn.Module) -> dict[str, Gate]:
        """The gates of the model, or of a copy of it, by module path."""
        return named_gates(model)

    def network(self, model: nn.Module, inputs: ExampleInputs, _: Groups) -> Network:
        """The model as it will be in use, without gates: what costs are about."""
        return placed_network(model, inputs, self.gates(model), self._find)

    def needed(
        self, model: nn.Module, groups: Groups, closed: Mapping[str, Units]
    ) -> dict[Atom, Units]:
        """Units of every group that something may still read."""
        gates = self.gates(model)
        shut = {
            atom: units[present_units(gates[name])]
            for name, units in closed.items()
            if (atom := self._own_atom(groups, name)) is not None
        }
        places = {name: gate.select for name, gate in gates.items()}
        return needed_units(groups, self._rule, shut, places)

    def unread(
        self, model: nn.Module, groups: Groups, closed: Mapping[str, Units]
    ) -> dict[str, Units]:
        """Units of each gate that nobody reads when these are closed for good."""
        needed, gates = self.needed(model, groups, closed), self.gates(model)
        found = dict[str, Units]()
        for name, link in self._links.items():
            behind = mask(axis_of(groups, link.out, link.dim), needed)
            read = present_units(gates[name])[behind]
            nobody = torch.ones(gates[name].size, dtype=torch.bool)
            found[name] = nobody.index_fill(0, read, value=False)
        return found

    def cut_(
        self,
        model: nn.Module,
        groups: Groups,
        needed: Mapping[Atom, Units],
        closed: Mapping[str, Units],
    ) -> dict[str, Units]:
        """Forget units in the gates, and select what is left from their inputs.

        An open unit that nobody reads leaves the data but not its gate: it takes part
        in the mean of the open ones, and in the penalty, until it closes.
        """
        gates, kept = self.gates(model), dict[str, Units]()
        for name, link in self._links.items():
            gate = gates[name]
            before = mask(axis_of(groups, link.x, link.dim), needed)
            behind = mask(axis_of(groups, link.out, link.dim), needed)
            old = (
                torch.arange(len(behind)) if gate.select is None else gate.select.cpu()
            )
            places = (before.cumsum(0) - 1)[old[behind]]
            in_line = torch.equal(places, torch.arange(int(before.sum())))
            gate.select = None if in_line else places.to(gate.logits.device)
            present = present_units(gate)[behind]
            kept[name] = (~closed[name]).index_fill(0, present, value=True)
            present = (kept[name].cumsum(0) - 1)[present]
            is_whole = len(present) == int(kept[name].sum())
            gate.present = None if is_whole else present.to(gate.logits.device)
        return keep_(gates, kept)

    def refresh_(self, model: nn.Module, groups: Groups) -> None:
        """Nothing to do: a placed gate knows its own place."""

    @torch.no_grad()
    def finish_(self, model: nn.Module, groups: Groups) -> None:
        """Absorb the gates into parameters, and leave a plain selection if need be."""
        fold_gates(model)
        for name, gate in self.gates(model).items():
            gate.eval()  # noise must not become a weight
            link = self._links.get(name)
            absorbed = link is not None and absorb_(model, groups, link, gate)
            left = Select(gate.dim, gate.select, None if absorbed else _spread(gate))
            plain = left if left.does_something else nn.Identity()
            path, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(path), attribute, plain.train(model.training))

    def _own_atom(self, groups: Groups, name: str) -> Atom | None:
        if name not in self._links:
            return None
        axis = axis_of(groups, self._links[name].out, self._links[name].dim)
        return axis[0] if len(axis) == 1 and isinstance(axis[0], Atom) else None


@final
class Select(nn.Module):
    """What is left of a placed gate that could not be absorbed: a choice, a scale.

    Args:
        dim: The dimension it works on.
        index: Which elements stay; all if omitted.
        scale: What they are multiplied by, along this dimension and following ones;
            nothing if omitted.
    """

    index: Tensor | None
    scale: Tensor | None

    def __init__(self, dim: int, index: Tensor | None, scale: Tensor | None) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("index", index)
        self.register_buffer("scale", scale)

    @property
    def does_something(self) -> bool:
        """Whether the output can differ from the input."""
        return self.index is not None or self.scale is not None

    def forward(self, x: Tensor) -> Tensor:
        """Choose, then scale."""
        if self.index is not None:
            x = x.index_select(self.dim, self.index)
        if self.scale is not None:
            after = x.ndim - self.dim % x.ndim - self.scale.ndim
            x = x * self.scale.to(x).view(*self.scale.shape, *(1,) * after)
        return x

    def extra_repr(self) -> str:
        """The number of elements, for `print`."""
        kept = self.index if self.index is not None else self.scale
        return f"dim={self.dim}, elements={0 if kept is None else len(kept)}"


def present_units(gate: Gate) -> Int[Tensor, " width"]:
    """The units of a gate that the data still has."""
    return torch.arange(gate.size) if gate.present is None else gate.present.cpu()


def _spread(gate: Gate) -> Tensor:
    """The values of a gate as its input sees them."""
    values = gate.values()
    return values[present_units(gate)] if gate.index is None else values[gate.index]

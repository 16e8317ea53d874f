"""Gates that users put into their models, as the paper does: cut, and folded away."""

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, final

import torch
from torch import Tensor, nn

from diffprune._core.randomness import torch_forked
from diffprune._core.types import Int
from diffprune._costs.network import Network
from diffprune._graph import (
    Atom,
    ExampleInputs,
    Groups,
    PruneGroup,
    mask,
    size,
    unchanged,
)
from diffprune._pruner.budget_view import FindGroups, placed_network
from diffprune._pruner.gate_absorption import absorb_
from diffprune._pruner.gate_links import GateRule, needed_units
from diffprune._pruner.placement import Cut, Keep, Layout, keep_gates_
from diffprune._surgery.apply import replace_module_
from diffprune._surgery.replacement_modules import Select
from diffprune.errors import ArgumentError
from diffprune.gates import BaseGate, GateLike, fold_gates
from diffprune.gates.penalty import named_gates
from diffprune.gates.pooled import PooledGates

NAME = "_diffprune_inputs"


@final
class InputSelection(nn.Module):
    """Which elements of its input a placed gate reads; the pruner installs it.

    Args:
        dim: The gated dimension.
    """

    index: Int[Tensor, " width"] | None

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("index", None)

    def before(self, _: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Hook: the gate is given only what it reads."""
        if self.index is None:
            return None
        return (args[0].index_select(self.dim, self.index), *args[1:])


def install_(model: nn.Module) -> None:
    """Let the inputs of every gate in a model be selected."""
    for gate in named_gates(model).values():
        selection = InputSelection(gate.dim)
        gate.add_module(NAME, selection)
        gate.register_forward_pre_hook(selection.before)


@contextmanager
def standing_still(gates: Iterable[BaseGate]) -> Generator[None]:
    """Let gates multiply by constants while their model is traced.

    How a gate comes to its values is its own affair: they may branch on numbers.
    """
    gates = [*gates]
    for gate in gates:
        with torch.no_grad(), torch_forked(), unchanged(gate):
            values = gate.values()
        gate.stand_in = values
    try:
        yield
    finally:
        for gate in gates:
            gate.stand_in = None


@final
class UserGates:
    """Gates that a user put into a model; a `GatePlacement`.

    Args:
        model: The model.
        rule: The rule that found the gates in its trace.
        find: Finds groups with the user's options.
    """

    def __init__(self, model: nn.Module, rule: GateRule, find: FindGroups) -> None:
        self._rule, self._find = rule, find
        self._links = {link.gate: link for link in rule.links}
        self._sizes = {name: gate.size for name, gate in named_gates(model).items()}
        install_(model)

    def gates(self, model: nn.Module) -> dict[str, GateLike]:
        """The gates of the model, or of a copy of it, by module path."""
        return {**named_gates(model)}

    def pooled(self, model: nn.Module) -> PooledGates:
        """The gates of the model, for their penalty: each layer asks for its values."""
        pooled = PooledGates(self.gates(model))
        for name, gate in named_gates(model).items():
            gate.listener = partial(pooled.slopes.listen, name)
        return pooled

    def units(self, groups: Groups) -> dict[str, PruneGroup]:
        """What each gate decides about, by the name of the gate."""
        by_atom = {group.atom: group for group in groups}
        return {name: self._unit(groups, by_atom, name) for name in self._sizes}

    def _unit(
        self, groups: Groups, by_atom: Mapping[Atom, PruneGroup], name: str
    ) -> PruneGroup:
        link = self._links.get(name)
        width = self._sizes[name] if link is None else size(link.behind(groups))
        atom = (link and link.own_atom(groups)) or Atom(width)
        own = PruneGroup(name, width, (), 0, 0, atom)
        return replace(by_atom.get(atom, own), name=name)

    def present(self, model: nn.Module) -> dict[str, Int[Tensor, " width"]]:
        """The units of each gate that the data still has."""
        return {n: self._present(n, gate) for n, gate in named_gates(model).items()}

    def _present(self, name: str, gate: BaseGate) -> Int[Tensor, " width"]:
        index = gate.index if name in self._links else None
        return torch.arange(gate.size) if index is None else index.cpu()

    def cut(
        self,
        model: nn.Module,
        groups: Groups,
        keep: Mapping[str, Keep],
        atoms: Mapping[Atom, Keep] | None = None,
    ) -> Cut:
        """Keep what something behind the gates may still read.

        A closed unit that is needed further on stays. An open unit that nobody reads
        leaves the data but not its gate: it takes part in the mean of the open ones,
        and in the penalty, until it closes.
        """
        gates, present = named_gates(model), self.present(model)
        read = {name: selection_of(gate).index for name, gate in gates.items()}
        if atoms is None:
            lets_through = {name: keep[name][present[name]] for name in self._links}
            atoms = needed_units(groups, self._rule, lets_through, read)
        stays, layouts = dict(keep), dict[str, Layout]()
        for name, link in self._links.items():
            before = mask(link.before(groups), atoms)
            behind = mask(link.behind(groups), atoms)
            units = present[name][behind]
            stays[name] = keep[name].index_fill(0, units, value=True)
            layouts[name] = _layout(before, behind, units, stays[name], read[name])
        unlinked = {n: torch.ones_like(keep[n]) for n in keep.keys() - self._links}
        return Cut(stays | unlinked, atoms, groups, layouts)

    def keep_(self, model: nn.Module, cut: Cut) -> None:
        """Cut the gates, and select what is left from their inputs."""
        gates = named_gates(model)
        keep_gates_(gates, cut.gates)
        for name, layout in cut.layouts.items():
            gate = gates[name]
            device = gate.is_open().device
            gate.index = None if layout.units is None else layout.units.to(device)
            inputs = None if layout.inputs is None else layout.inputs.to(device)
            selection_of(gate).index = inputs

    @torch.no_grad()
    def fold_(self, model: nn.Module, groups: Groups) -> None:
        """Absorb the gates into parameters, and leave a plain selection if need be."""
        fold_gates(model)
        for name, gate in named_gates(model).items():
            gate.eval()  # noise must not become a weight
            links = [link for link in self._rule.links if link.gate == name]
            inputs = selection_of(gate).index
            values = gate.values() if gate.index is None else gate.values()[gate.index]
            absorbed = absorb_(model, groups, links, values, inputs)
            left = Select(gate.dim, inputs, None if absorbed else values)
            plain = left if left.does_something else nn.Identity()
            plain.train(model.training)
            replace_module_(model, gate, plain)

    def unfold_(
        self, model: nn.Module, groups: Groups, gates: Mapping[str, GateLike]
    ) -> None:
        """Refuse: other layers are in the places of these gates by now.

        Raises:
            ArgumentError: Always.
        """
        del model, groups, gates
        raise ArgumentError(
            "the budget is met and the gates that you placed are folded away, so this "
            "run cannot go back to a state that has them.\nLoad it into a new `Pruner` "
            "of a fresh model."
        )

    def network(
        self, model: nn.Module, inputs: ExampleInputs, groups: Groups
    ) -> Network:
        """The model as it will be in use, without gates: what costs are about.

        Raises:
            ArgumentError: If gates share their units, or closing one removes nothing.
        """
        found = placed_network(model, inputs, named_gates(model), self._find)
        # The only unit of a gate stays, whatever closes.
        keep = {
            name: (torch.arange(size) > 0) | (size == 1)
            for name, size in self._sizes.items()
        }
        stays = self.cut(model, groups, keep).gates
        for name, units in keep.items():
            if not torch.equal(stays[name], units):
                raise ArgumentError(
                    f"what gate `{name}` closes stays in the model, as where something "
                    "that has no gate is added to it, so no budget can count on it.\n"
                    "Put the gate behind the sum, or use `strength=`."
                )
        return found


def selection_of(gate: BaseGate) -> InputSelection:
    """What the pruner has installed in a placed gate."""
    selection = gate.get_submodule(NAME)
    assert isinstance(selection, InputSelection)  # noqa: S101 - by construction
    return selection


def _layout(
    before: Keep,
    behind: Keep,
    units: Int[Tensor, " width"],
    stays: Keep,
    read: Int[Tensor, " width"] | None,
) -> Layout:
    """Where a gate finds its units when only these elements and units are left."""
    old = torch.arange(len(behind)) if read is None else read.cpu()
    inputs = (before.cumsum(0) - 1)[old[behind]]
    numbers = (stays.cumsum(0) - 1)[units]
    return Layout(
        None if _counts_up(inputs, int(before.sum())) else inputs,
        None if _counts_up(numbers, int(stays.sum())) else numbers,
    )


def _counts_up(numbers: Int[Tensor, " n"], length: int) -> bool:
    return torch.equal(numbers, torch.arange(length))

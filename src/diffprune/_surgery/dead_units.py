"""Which units of a model already do nothing. Knows values, not where they came from.

A unit is dead if at every sum over its axis one of the factors is zero: nobody reads
it, or nothing is written to it. It is *constant* if it does not depend on the input.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import cache, reduce

import torch
from torch import Tensor, fx, nn

from diffprune._core.types import Bool
from diffprune._graph import (
    Atom,
    Memory,
    Silence,
    Silencer,
    Solution,
    Spreading,
    Step,
    Value,
    all_of,
    atoms,
)

Units = Mapping[Atom, Bool[Tensor, " units"]]


def silencer_of(model: nn.Module, solution: Solution) -> Silencer:
    """What is silent in a model as its parameters are now; a buffer is no evidence."""
    parameters = dict(model.named_parameters(remove_duplicate=False))

    @cache
    def zero_slices(name: str, dim: int) -> Bool[Tensor, " n"]:
        tensor = parameters.get(name)
        if tensor is None:
            return torch.zeros((), dtype=torch.bool)
        others = [d for d in range(tensor.ndim) if d != dim]
        zero = tensor.detach() == 0
        return (zero.amin(others) if others else zero).cpu()

    return Silencer(solution, zero_slices)


def dead_units(
    candidates: Iterable[Atom], silence: Spreading[Tensor]
) -> dict[Atom, Bool[Tensor, " units"]]:
    """Units that can go without anybody noticing, for each of these atoms."""
    solution = silence.solution
    found = {atom: torch.ones(atom.size, dtype=torch.bool) for atom in candidates}
    for contraction in solution.facts.contractions:
        silences = [silence.along(value, dim) for value, dim in contraction.operands]
        axis = solution.algebra.resolve(contraction.axis)
        for atom in set(atoms(axis)) & found.keys():
            found[atom] &= _somewhere(silences, atom)
    return found


def _somewhere(silences: list[Silence], atom: Atom) -> Bool[Tensor, " units"]:
    nowhere = torch.zeros(atom.size, dtype=torch.bool)
    return reduce(torch.logical_or, (s[atom] for s in silences if atom in s), nowhere)


class Constants:
    """Which units of every value do not depend on the model's input, in eval mode."""

    def __init__(self, solution: Solution, silencer: Silencer) -> None:
        self._solution = solution
        self._silencer = silencer
        self._known: dict[Value, Units] = {}
        self._independent = set(solution.tensors.values())
        self._memory = Memory()
        for step in solution.steps:
            self._spread(step)

    def of(self, value: Value) -> Units:
        """Constant units of each atom of a value."""
        if value not in self._independent:
            return self._known.get(value, {})
        everywhere = self._solution.atoms(value)
        return {atom: torch.ones(atom.size, dtype=torch.bool) for atom in everywhere}

    def _spread(self, step: Step) -> None:
        is_independent = all(value in self._independent for value in step.inputs)
        found = {
            output: {a: self._constant(step, a) for a in self._solution.atoms(output)}
            for output in step.outputs
        }
        for other in self._memory.rewritten(step):
            if not is_independent:
                self._known[other] = all_of([self.of(other), *found.values()])
                self._independent.discard(other)
        if is_independent:
            self._independent.update(step.outputs)
        for output, units in found.items():
            self._known[output] = {atom: m for atom, m in units.items() if m.any()}

    def _constant(self, step: Step, atom: Atom) -> Bool[Tensor, " units"]:
        inherited = [self._inherited(value, atom) for value in step.inputs]
        constant = reduce(torch.logical_and, inherited, torch.tensor(data=True))
        constant = constant.expand(atom.size)
        for weight, dim in step.rows()[:1]:
            rows = self._silencer.along(weight, dim)
            constant = constant | rows.get(atom, torch.tensor(data=False))
        return constant

    def _inherited(self, value: Value, atom: Atom) -> Bool[Tensor, "#units"]:
        if value in self._independent:
            return torch.tensor(data=True)
        if not self._silencer.carries(value, atom):
            return torch.tensor(data=False)
        return self._known.get(value, {}).get(atom, torch.tensor(data=False))


def needed(graph: fx.Graph, zeros: Collection[fx.Node]) -> set[fx.Node]:
    """Nodes that the results depend on when some are known to be zero.

    Results are the outputs, and whatever else nothing reads: it may be written in
    place, or be an output in training.
    """
    found: set[fx.Node] = set()
    waiting = [node for node in graph.nodes if not node.users]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += [] if node in zeros else node.all_input_nodes
    return found

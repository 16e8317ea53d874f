"""What the gate of each group has to multiply.

A closed gate must make every sum over its group blind to the unit. Where a parameter is
one factor of the sum, that parameter is gated. Where two activations meet (queries and
keys), the gate goes to what produces one of them, after any normalisation.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain
from typing import TypeAlias, final

from diffprune._graph import (
    Atom,
    Axis,
    Contraction,
    Groups,
    Memory,
    PruneGroup,
    Solution,
    Spreading,
    Step,
    Value,
    atoms,
)

Target: TypeAlias = tuple[str, int]
"""A parameter, by name, and a dimension of it."""


@final
class Targets:
    """Finds what gates multiply; whatever all groups share is looked up once.

    Args:
        groups: The groups of a model.
    """

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._sums = groups.solution.sums()
        self._steps = _steps_of_atoms(groups.solution)
        self._makers = {
            output: (place, step)
            for place, step in enumerate(groups.solution.steps)
            for output in step.outputs
        }

    def of(self, group: PruneGroup) -> list[Target]:
        """The parameters, with the dimension, that the gate of a group multiplies."""
        chosen, bare = dict[Target, None](), list[Contraction]()
        for contraction in self._sums.get(group.atom, ()):
            named = [
                (str(value.name), dim)
                for value, dim in contraction.operands
                if value.name in self._groups.solution.parameter_names
            ]
            if named:
                chosen[named[-1]] = None
            else:
                bare.append(contraction)
        return self._upstream(group, bare, chosen)

    def _upstream(
        self,
        group: PruneGroup,
        bare: Sequence[Contraction],
        chosen: Mapping[Target, None],
    ) -> list[Target]:
        """Add parameters, the latest first, until all sums of activations are blind."""
        gated = dict(chosen)
        waiting = [(bare_sum, self._producers(group, bare_sum)) for bare_sum in bare]
        while waiting:
            silence = self._when_gated(group.atom, gated)
            waiting = [
                (bare_sum, producers)
                for bare_sum, producers in waiting
                if not _is_blind(bare_sum, group.atom, silence)
            ]
            for _, producers in waiting:
                # A group that nothing can silence is never found.
                gated.update(dict.fromkeys(next(producers)))
        return list(gated)

    def _producers(
        self, group: PruneGroup, bare_sum: Contraction
    ) -> Iterator[list[Target]]:
        """What makes the operands of a sum, step by step back, then all other steps."""
        unread = {
            (place.tensor, place.dim)
            for place in group.axes
            if place.is_parameter and not place.is_read and not place.is_direction
        }
        others = reversed(self._steps.get(group.atom, ()))
        for step in chain(self._before(bare_sum, group.atom), others):
            read = [
                (v.name, d) for v in step.inputs if v.name for d in range(len(v.axes))
            ]
            if found := [target for target in read if target in unread]:
                yield found

    def _before(self, bare_sum: Contraction, atom: Atom) -> Iterator[Step]:
        """Steps that the operands of a sum come from, along the atom, latest first."""
        waiting = list[tuple[int, Step]]()
        seen = set[int]()

        def wait_for(values: Iterable[Value]) -> None:
            for value in values:
                place, step = self._makers.get(value, (0, None))
                if step is None or place in seen:
                    continue
                if atom in self._groups.solution.atoms(value):
                    seen.add(place)
                    heappush(waiting, (-place, step))

        wait_for(value for value, _ in bare_sum.operands)
        while waiting:
            _, step = heappop(waiting)
            yield step
            wait_for(step.inputs)

    def _when_gated(self, atom: Atom, gated: Container[Target]) -> Spreading[bool]:
        """Where the units of an atom are silent once the gate multiplies these."""

        def evidence(name: str, dim: int, axis: Axis) -> Mapping[Atom, bool]:
            return {a: (name, dim) in gated for a in atoms(axis) if a is atom}

        steps = self._steps.get(atom, ())
        return Spreading(self._groups.solution, evidence, lambda _: True, steps)


def _is_blind(contraction: Contraction, atom: Atom, silence: Spreading[bool]) -> bool:
    operands = contraction.operands
    return any(silence.along(value, dim).get(atom, False) for value, dim in operands)


def _steps_of_atoms(solution: Solution) -> dict[Atom, list[Step]]:
    """The steps that have to do with each atom, be it by way of shared memory."""
    memory = Memory()
    for step in solution.steps:
        memory.rewritten(step)
    known: dict[Value, set[Atom]] = {}
    found: dict[Atom, list[Step]] = {}
    for step in solution.steps:
        touched = dict[Atom, None]()
        for value in (*step.inputs, *step.outputs):
            for other in memory.sharing(value):
                if other not in known:
                    known[other] = solution.atoms(other)
                touched.update(dict.fromkeys(known[other]))
        for atom in touched:
            found.setdefault(atom, []).append(step)
    return found

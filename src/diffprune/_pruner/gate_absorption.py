"""Multiply the values of a placed gate into the parameters around it.

A positive factor passes through reshaping, pooling and rectifiers: forwards into
whatever reads the gate, or backwards into what feeds it. The values of `Gate` are never
negative; those of other gates may be.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from diffprune._core.types import Float, Int
from diffprune._graph import Atom, Axis, Groups, Step, Value, atoms, size, unit_numbers
from diffprune._pruner.gate_links import Link, only_atom

Target: TypeAlias = tuple[str, int]
Find: TypeAlias = Callable[[Groups, Link], list[Target] | None]


@torch.no_grad()
def absorb_(
    model: nn.Module,
    groups: Groups,
    links: Sequence[Link],
    values: Float[Tensor, " width"],
    inputs: Int[Tensor, " width"] | None,
) -> bool:
    """Let parameters do what a gate does; whether there are any that can.

    Args:
        model: The model, changed in place.
        groups: Its groups.
        links: Where the gate is: once for every use of it, in every trace.
        values: What it multiplies each element by.
        inputs: Which elements of its input it reads; all if None.
    """
    if not links or bool((values < 0).any()):
        return False
    read = _everywhere(_readers, groups, links)
    if read is not None:
        _multiply_(model, groups, read, links[0].behind(groups), values)
        return True
    fed = _everywhere(_feeders, groups, links)
    if fed is not None:
        before = links[0].before(groups)
        scale = values.new_ones(size(before))
        scale[... if inputs is None else inputs] = values
        _multiply_(model, groups, fed, before, scale)
        return True
    return False


def _everywhere(
    find: Find, groups: Groups, links: Sequence[Link]
) -> set[Target] | None:
    """What is found at all uses of a gate, one way; None if some use has nothing.

    Uses that a model has in eval and in train mode are in two traces; what they have in
    common is multiplied once.
    """
    found = [find(groups, link) for link in links]
    whole = [targets for targets in found if targets is not None]
    return set().union(*whole) if len(whole) == len(found) else None


def _multiply_(
    model: nn.Module,
    groups: Groups,
    targets: Iterable[Target],
    axis: Axis,
    values: Float[Tensor, " units"],
) -> None:
    (atom,) = atoms(axis)
    for name, dim in targets:
        parameter = model.get_parameter(name)
        numbers = unit_numbers(groups.tensors[name][dim], atom).to(values.device)
        factor = values[numbers.clamp(min=0)].where(numbers >= 0, 1.0)
        parameter *= factor.view(-1, *(1,) * (parameter.ndim - dim - 1)).to(parameter)


def _readers(groups: Groups, link: Link) -> list[Target] | None:
    """Parameters through which alone a gate is read; None if there are other ways."""
    atom = only_atom(link.behind(groups))
    if atom is None:
        return None
    found, reached = list[Target](), set(_outputs(groups, link))
    for step in groups.solution.steps:
        if not any(value in reached for value in step.inputs):
            continue
        if step.rule.passes_scale:
            reached.update(step.outputs)
            continue
        targets = _targets(groups, step, reached, atom)
        if not targets or any(_uses(groups, name) > 1 for name, _ in targets):
            return None
        found.extend(targets)
    return found or None


def _targets(
    groups: Groups, step: Step, reached: set[Value], atom: Atom
) -> list[Target]:
    """Parameters that meet the units of a gate where a step sums over these."""
    resolve = groups.solution.algebra.resolve
    return [
        (str(value.name), dim)
        for contraction in groups.solution.facts.contractions
        if contraction.where is step.call.where
        and atom in atoms(resolve(contraction.axis))
        and any(operand in reached for operand, _ in contraction.operands)
        for value, dim in contraction.operands
        if value.name in groups.solution.parameter_names
    ]


def _feeders(groups: Groups, link: Link) -> list[Target] | None:
    """Parameters that alone make what a gate reads; None if others take part."""
    made = {output: step for step in groups.solution.steps for output in step.outputs}
    value, atom = link.x, only_atom(link.before(groups))
    while atom is not None and value in made and _times_read(groups, value) == 1:
        step = made[value]
        if step.rule.rows:
            rows = [(str(value.name), dim) for value, dim in step.rows()]
            own = [name in groups.solution.parameter_names for name, _ in rows]
            own += [atom in atoms(groups.tensors[name][dim]) for name, dim in rows]
            alone = all(own) and all(_uses(groups, name) == 1 for name, _ in rows)
            return rows if rows and alone else None
        if not step.rule.passes_scale:
            return None
        value = step.inputs[0]
    return None


def _outputs(groups: Groups, link: Link) -> Iterator[Value]:
    for step in groups.solution.steps:
        yield from (value for value in step.outputs if value.axes is link.out.axes)


def _times_read(groups: Groups, value: Value) -> int:
    """How often a forward pass reads a value; train mode has a trace of its own."""
    reads = (s.node.graph for s in groups.solution.steps if value in s.inputs)
    return max(Counter(reads).values(), default=0)


def _uses(groups: Groups, name: str) -> int:
    return _times_read(groups, groups.solution.tensors[name])

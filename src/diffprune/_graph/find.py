"""From a model and example inputs to its groups: trace, solve, settle, collect."""

import fnmatch
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from torch import nn

from diffprune._core.arguments import did_you_mean
from diffprune._core.door import door
from diffprune._graph.axes import atoms, atoms_of
from diffprune._graph.groups import Groups, PruneGroup, collect, unknown_group
from diffprune._graph.infer import Solution, solve
from diffprune._graph.model_runs import ExampleInputs
from diffprune._graph.rule_api import Frozen, Op, Rule
from diffprune._graph.tracing import trace
from diffprune._graph.width_constraints import layer_attributes, settle
from diffprune._graph.zeros import when_zeroed
from diffprune.errors import ArgumentError, UnknownNameError

Norms: TypeAlias = Literal["exact", "narrow"]
Heads: TypeAlias = Literal["both", "whole", "head_dim"]


@door
def find_groups(
    model: nn.Module,
    example_inputs: ExampleInputs,
    *,
    freeze: Sequence[str] = (),
    heads: Heads = "both",
    rules: Mapping[Op, Rule] | None = None,
    tie: Sequence[Sequence[str]] = (),
    norms: Norms = "exact",
) -> Groups:
    """Find the sets of tensor slices that can be removed together, exactly.

    Args:
        model: Any module that `torch.export` can trace. It is not changed.
        example_inputs: A tensor, a tuple of positional arguments, or a dict of keyword
            arguments.
        freeze: Names or patterns (`"head"`, `"layers.0.*"`) of layers to leave as they
            are, or of groups whose names have a colon (`"*:head_dim"`).
        heads: Whether attention loses `"whole"` heads, units of the `"head_dim"` of
            every head, or `"both"`.
        rules: Rules for ops that have none, or that replace rules of the library.
        tie: Sets of groups, each a list of names or patterns (`["layers.*.fc1"]`): all
            groups of a set become one, so that they keep the same units.
        norms: What to do about a width that a LayerNorm or the like normalises over,
            such as the stream of a transformer. If one of its units is removed, the
            norm returns other values for all others, so the width is left whole
            (`"exact"`). With `"narrow"` it can be cut: norms take their statistics over
            the units that are left, and a refit or training has to make up for it.

    Raises:
        ArgumentError: If the model or an argument is not valid.
        UnknownNameError: If a pattern matches no layer or no group.
        TraceError: If the control flow of the model depends on values.

    Examples:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
        >>> [(group.name, group.size) for group in find_groups(model, torch.rand(2, 3))]
        [('0', 5)]
    """
    solution = solve(model, trace(model, example_inputs), rules or {})
    layers = [name for name in freeze if ":" not in name]
    named = [name for name in freeze if ":" in name]
    _freeze_coupled(solution, norms)
    if not named:
        _freeze_named(model, solution, layers)
    _freeze_unread(solution)
    _freeze_heads(solution, heads)
    attributes = settle(solution, layer_attributes(model, solution))
    _freeze_loud_contractions(solution)
    groups = collect(solution, attributes)
    for pattern in named:
        for group in _matching("freeze", groups, [pattern]):
            reason = Frozen(f"asked for with freeze={pattern!r}")
            solution.algebra.freeze((group.atom,), reason)
    if named:  # a group is called otherwise once it is the only one of its layer
        _freeze_named(model, solution, layers)
    for patterns in tie:
        _tie_(solution, groups, patterns)
    return collect(solution, attributes) if named or tie else groups


def _matching(option: str, groups: Groups, patterns: Sequence[str]) -> list[PruneGroup]:
    """The groups that patterns name; each has to name some."""
    for pattern in patterns:
        if not fnmatch.filter(groups.sizes, pattern):
            raise UnknownNameError(f"{option}: {unknown_group(pattern, groups)}")
    return [g for g in groups if any(fnmatch.fnmatchcase(g.name, p) for p in patterns)]


def _tie_(solution: Solution, groups: Groups, patterns: Sequence[str]) -> None:
    """Let groups be one from now on: a unit is kept in all of them, or in none."""
    tied = _matching("tie", groups, patterns)
    for group in tied[1:]:
        if group.size != tied[0].size:
            raise ArgumentError(
                f"tie: `{tied[0].name}` has {tied[0].size} units and `{group.name}` "
                f"has {group.size}, so they cannot keep the same ones."
            )
        solution.algebra.unify((tied[0].atom,), (group.atom,))


def _freeze_named(
    model: nn.Module, solution: Solution, patterns: Sequence[str]
) -> None:
    modules = (name for name, _ in model.named_modules() if name)
    names = list(dict.fromkeys((*modules, *solution.tensors)))
    for pattern in patterns:
        matched = fnmatch.filter(names, pattern)
        if not matched:
            hint = did_you_mean(pattern, names, cutoff=0.4)
            raise UnknownNameError(f"freeze: no layer matches `{pattern}`.{hint}")
        for name, value in solution.tensors.items():
            if any(name == m or name.startswith(f"{m}.") for m in matched):
                for axis in value.axes:
                    reason = Frozen(f"asked for with freeze={pattern!r}")
                    solution.algebra.freeze(axis, reason)


def _freeze_coupled(solution: Solution, norms: Norms) -> None:
    """Units that norms couple cannot be removed exactly."""
    if norms == "exact":
        for axis, reason in solution.facts.coupled:
            solution.algebra.freeze(axis, reason)


def _freeze_unread(solution: Solution) -> None:
    """Freeze what the example does not reach, such as places behind its last one.

    Part of a table that is `table[: x.shape[1]]` belongs to longer inputs. What is read
    takes part in a sum, or in a value that depends on the inputs.
    """
    algebra = solution.algebra
    sums = (algebra.resolve(found.axis) for found in solution.facts.contractions)
    read = atoms_of(sums)
    fixed = {id(value) for value in solution.tensors.values()}
    for step in solution.steps:
        if all(id(value) in fixed for value in step.inputs):
            fixed.update(map(id, step.outputs))
        else:
            for value in (*step.inputs, *step.outputs):
                read |= solution.atoms(value)
    for value in solution.tensors.values():
        for atom in solution.atoms(value) - read:
            algebra.freeze((atom,), Frozen("not read for these inputs"))


def _freeze_heads(solution: Solution, heads: Heads) -> None:
    unwanted = {
        "both": [],
        "whole": solution.facts.inside_heads + solution.facts.inside_values,
        "head_dim": solution.facts.heads,
    }[heads]
    for axis in unwanted:
        solution.algebra.freeze(axis, Frozen(f"asked for with heads={heads!r}"))


def _freeze_loud_contractions(solution: Solution) -> None:
    """A sum must be blind to removed units: one of its factors has to be zero there."""
    zeroed, coupled = when_zeroed(solution), solution.coupled()
    for contraction in solution.facts.contractions:
        silent = [zeroed.along(value, dim) for value, dim in contraction.operands]
        for atom in atoms(solution.algebra.resolve(contraction.axis)):
            if atom in coupled:
                continue  # frozen, or nobody asks for exactness
            if not any(masks.get(atom, False) for masks in silent):
                why = "summed over while nothing makes it zero when its unit is removed"
                reason = Frozen(why, contraction.where)
                solution.algebra.freeze((atom,), reason)

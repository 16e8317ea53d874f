"""Find residual branches that only ever add zeros, and replace their modules by stubs.

The search walks back from the outputs of the model: a node that is reached only through
something that is always zero is not needed. Whether the forward pass accepts stubs is
tried out, and a branch for which it does not is left as it is.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.conv import _ConvNd
from torch.utils.hooks import RemovableHandle

from diffprune._graph import ExampleInputs, Groups, Silencer, Trace, functional_op
from diffprune._surgery.apply import apply_plan
from diffprune._surgery.bias_transfer import hand_back_
from diffprune._surgery.compare import outputs
from diffprune._surgery.dead_units import needed, silencer_of
from diffprune._surgery.equivalence import certify
from diffprune._surgery.plan import Plan
from diffprune._surgery.replacement_modules import Stub
from diffprune.errors import RemovalError

aten = torch.ops.aten
Shape: TypeAlias = tuple[int, ...]
_SUMS: Final = (aten.add, aten.sub)


@dataclass(frozen=True)
class Branch:
    """Modules that together make a zero.

    Attributes:
        last: The one that returns it.
        paths: All of them, none inside another, in the order in which they finish.
        ends: What could stand for the last one, the most likely first.
    """

    last: str
    paths: tuple[str, ...]
    ends: tuple[Stub, ...]

    def stubs(self, end: Stub) -> dict[str, Stub]:
        """What stands for each module, given what does for the last one."""
        return {**dict.fromkeys(self.paths, Stub()), self.last: end}


class Shapes(NamedTuple):
    """What a module was given and returned in its only call."""

    given: Shape
    returned: Shape


def remove_branches_(
    model: nn.Module, groups: Groups, plan: Plan, inputs: ExampleInputs
) -> Plan:
    """Add to a plan the silent branches that can go without changing an output.

    Args:
        model: Zero where it is dead. Biases may move from layer to layer in it.
        groups: Its groups.
        plan: What is removed anyway; it keeps at least one unit of each group.
        inputs: As for `find_groups`.
    """
    hand_back_(model, groups.solution)
    silencer = silencer_of(model, groups.solution)
    small = apply_plan(model, plan)
    branches = silent_branches(silencer, small, inputs)
    if not branches:
        return plan
    together = {k: v for b in branches for k, v in b.stubs(b.ends[0]).items()}
    one_by_one = [branch.stubs(end) for branch in branches for end in branch.ends]
    for stubs in (together, *one_by_one):
        if not stubs.keys() <= plan.stubs.keys():
            trial = _without(groups, plan, stubs)
            if _agree(small, apply_plan(model, trial), inputs):
                plan = trial
    return plan


def _without(groups: Groups, plan: Plan, stubs: Mapping[str, Stub]) -> Plan:
    """The plan with these stubs; groups that live in nothing else keep no unit."""
    inside = tuple(f"{path}." for path in (*plan.stubs, *stubs))
    gone = {
        group.name: ()
        for group in groups
        if all(place.tensor.startswith(inside) for place in group.axes)
    }
    return replace(plan.without(stubs), kept={**plan.kept, **gone})


def _agree(one: nn.Module, other: nn.Module, inputs: ExampleInputs) -> bool:
    try:
        certify(one, other, inputs)
    except RemovalError:
        return False
    return True


def silent_branches(
    silencer: Silencer, small: nn.Module, inputs: ExampleInputs
) -> list[Branch]:
    """Branches of residuals that are always zero.

    Their modules are called once, with one tensor, for one tensor, and all they compute
    is needed for nothing but the zero. Whether the rest of the forward pass accepts
    stubs in their place is not asked: try.

    Args:
        silencer: Which units of the model are silent, before anything is cut.
        small: The model cut so far, whose shapes the stubs must have.
        inputs: As for `find_groups`.
    """
    solution = silencer.solution
    silent = {s.node for s in solution.steps if all(map(silencer.is_zero, s.outputs))}
    if not silent:
        return []
    shapes = call_shapes(small, inputs)
    usual, *in_training = solution.traces
    return [
        branch
        for branch in _branches_in(usual.graph, silent, small, shapes)
        if not any(_is_read(trace, branch, silent) for trace in in_training)
    ]


def _is_read(trace: Trace, branch: Branch, silent: Collection[fx.Node]) -> bool:
    """Whether train mode reads more of a branch than the zero that it ends in."""
    inside = _nodes_inside(trace.graph, branch.paths)
    last = inside.get(branch.last, set())
    ends = [node for node in last if not last.issuperset(node.users)]
    if not all(node in silent and _is_added(node, silent) for node in ends):
        return True
    live = needed(trace.graph, ends)
    return any(
        node in live and not _is_counter(trace, node)
        for path, nodes in inside.items()
        for node in nodes
        if path != branch.last
    )


def _is_counter(trace: Trace, node: fx.Node) -> bool:
    """Whether a node only changes a buffer by itself, as batch norms count batches."""
    names = {given.name for given in node.all_input_nodes}
    return not node.users and names <= trace.tensor_names.keys()


def _branches_in(
    graph: fx.Graph,
    silent: Collection[fx.Node],
    small: nn.Module,
    shapes: Mapping[str, Shapes],
) -> list[Branch]:
    inside = _nodes_inside(graph, shapes)
    ends = {
        node: path
        for node, path in _ends(inside).items()
        if node in silent and _is_added(node, silent)
    }
    reached = needed(graph, ends)
    return [
        _branch(small, shapes, path, _unneeded(inside, needed(graph, [node]), path))
        for node, path in ends.items()
        if node in reached
    ]


def call_shapes(model: nn.Module, inputs: ExampleInputs) -> dict[str, Shapes]:
    """Shapes of all modules that are called once and turn one tensor into one.

    In the order in which they finish.
    """
    calls: dict[str, list[Shapes | None]] = {}

    def note(path: str, module: nn.Module) -> RemovableHandle:
        def hook(_: nn.Module, args: Any, kwargs: Any, out: Any) -> None:  # noqa: ANN401 - the user's
            tensors = [x for x in (*args, out) if isinstance(x, Tensor)]
            is_plain = len(tensors) == 2 == len(args) + 1 and not kwargs
            shapes = [tuple(tensor.shape) for tensor in tensors]
            calls.setdefault(path, []).append(Shapes(*shapes) if is_plain else None)

        return module.register_forward_hook(hook, with_kwargs=True)

    named = [(path, module) for path, module in model.named_modules() if path]
    with ExitStack() as hooks:
        for path, module in named:
            hooks.enter_context(note(path, module))
        outputs(model, inputs)
    return {p: s for p, (s, *more) in calls.items() if s is not None and not more}


def _nodes_inside(graph: fx.Graph, paths: Collection[str]) -> dict[str, set[fx.Node]]:
    found: dict[str, set[fx.Node]] = {path: set() for path in paths}
    for node in graph.nodes:
        for path, _ in (node.meta.get("nn_module_stack") or {}).values():
            if path in found:
                found[path].add(node)
    return {path: nodes for path, nodes in found.items() if nodes}


def _ends(inside: Mapping[str, set[fx.Node]]) -> dict[fx.Node, str]:
    """The node that each module returns; with the outermost of several modules."""
    ends: dict[fx.Node, str] = {}
    for path, nodes in inside.items():
        leaving = [node for node in nodes if not nodes.issuperset(node.users)]
        if len(leaving) == 1:
            ends[leaving[0]] = path  # those around a module finish after it
    return ends


def _is_added(node: fx.Node, silent: Collection[fx.Node]) -> bool:
    """Whether all that happens to a zero, normalised perhaps, is that it is added."""

    def is_added(user: fx.Node) -> bool:
        op = functional_op(user.target)
        passed_on = user in silent or op is aten.batch_norm
        return op in _SUMS or (passed_on and _is_added(user, silent))

    return all(map(is_added, node.users))


def _unneeded(
    inside: Mapping[str, set[fx.Node]], live: set[fx.Node], last: str
) -> list[str]:
    """Outermost modules all of whose nodes are unneeded, and the last one."""
    found = [p for p, nodes in inside.items() if p == last or nodes.isdisjoint(live)]
    return [p for p in found if not any(p.startswith(f"{q}.") for q in found)]


def _branch(
    model: nn.Module, shapes: Mapping[str, Shapes], last: str, paths: Sequence[str]
) -> Branch:
    modules = [m for path in paths for m in model.get_submodule(path).modules()]
    convs = [module for module in modules if isinstance(module, _ConvNd)]
    given, returned = shapes[paths[0]].given, shapes[last].returned
    if given == returned or not all(map(_is_centred, convs)):
        return Branch(last, tuple(paths), (Stub(),))
    strides = tuple(map(prod, zip(*(conv.stride for conv in convs), strict=False)))
    channels = -len(strides) - 1
    resized = Stub(strides, wider=returned[channels] - given[channels])
    return Branch(last, tuple(paths), (resized, Stub()))


def _is_centred(conv: _ConvNd) -> bool:
    """Whether all it does to positions, of any number, is to keep one in so many."""
    sides = zip(conv.padding, conv.dilation, conv.kernel_size, strict=False)
    return not conv.transposed and all(2 * p == d * (k - 1) for p, d, k in sides)

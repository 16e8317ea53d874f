"""Ops that torch itself makes of others, such as `multiply` of `mul`.

A trace shows them as they were called. Where no rule knows such an op, the ops that
torch makes of it take its place in the graph, and each of these has a rule or none.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import torch
from torch import Tensor, fx
from torch._guards import detect_fake_mode
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from diffprune._core.leaves import leaves_of
from diffprune._graph.int_tracking import labels
from diffprune._graph.ops import find_rule
from diffprune._graph.rule_api import Op, OpRule

_COMPOSED: Final = torch._C.DispatchKey.CompositeImplicitAutograd  # noqa: SLF001 - no public name
_LENGTHS: Final = ("size", "shape")


def spell_out_(owner: fx.GraphModule, rules: Mapping[Op, OpRule]) -> None:
    """Replace ops without a rule by those that torch makes of them.

    Args:
        owner: The graph, and graphs within it.
        rules: All rules that there are.

    Examples:
        >>> class Model(torch.nn.Module):
        ...     def forward(self, x):
        ...         return torch.multiply(x, x)
        >>> traced = torch.export.export(Model(), (torch.ones(2),)).graph_module
        >>> spell_out_(traced, {torch.ops.aten.mul: OpRule(print)})
        >>> [str(node.target) for node in traced.graph.nodes]
        ['x', 'aten.mul.Tensor', 'output']
    """
    for module in owner.modules():
        if isinstance(module, fx.GraphModule):
            found = [(node, _made_of(node, rules)) for node in module.graph.nodes]
            for node, made_of in found:
                if made_of is not None:
                    _put_in_place_(node, made_of)
            module.recompile()


def _made_of(node: fx.Node, rules: Mapping[Op, OpRule]) -> fx.GraphModule | None:
    """What torch makes of an op without a rule; None if widths are not to be followed.

    Such as an integer of the user's, which must follow a cut where it is used.
    """
    op = node.target
    if not isinstance(op, OpOverload) or find_rule(op, rules) is not None:
        return None
    if not op.has_kernel_for_dispatch_key(_COMPOSED):
        return None
    if any(source is not None for _, source in labels(node)):
        return None
    graph = _traced(op, node)
    if graph is None or any(map(_has_lengths, graph.graph.nodes)):
        return None
    return graph


def _traced(op: OpOverload, node: fx.Node) -> fx.GraphModule | None:
    """The ops that torch makes of this one; None if it looks at values for that."""
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    nodes = {i: leaf for i, leaf in enumerate(leaves) if isinstance(leaf, fx.Node)}
    tensors = [given.meta.get("val") for given in nodes.values()]
    results = pytree.tree_leaves(node.meta.get("val"))
    if not all(isinstance(tensor, Tensor) for tensor in (*tensors, *results)):
        return None

    def run(*given: Tensor) -> Any:  # noqa: ANN401 - whatever the op returns
        values = dict(enumerate(leaves)) | dict(zip(nodes, given, strict=True))
        args, kwargs = pytree.tree_unflatten(values.values(), spec)
        return op.decompose(*args, **kwargs)

    with suppress(Exception), torch.no_grad(), detect_fake_mode(tensors):  # pyright: ignore[reportOptionalContextManager] - values of a trace are fake
        return make_fx(run)(*tensors)
    return None


def _has_lengths(node: fx.Node) -> bool:
    """Whether lengths are written into it: where they came from is not known.

    Neither is it of a tensor that the op has made, which is no part of the trace.
    """
    if not isinstance(node.target, OpOverload):
        return node.op == "get_attr"
    names = (argument.name for argument in node.target._schema.arguments)  # noqa: SLF001 - no public name
    return any(name in _LENGTHS for name in names)


def _put_in_place_(node: fx.Node, made_of: fx.GraphModule) -> None:
    """Put a graph in the place of an op, as called from the same line of code."""
    graph, before = node.graph, set(node.graph.nodes)
    inputs = iter(leaves_of(fx.Node, (node.args, node.kwargs)))
    known = {n: next(inputs) for n in made_of.graph.find_nodes(op="placeholder")}
    with graph.inserting_before(node):
        out = graph.graph_copy(made_of.graph, known)
    about = {name: note for name, note in node.meta.items() if name != "val"}
    for added in set(graph.nodes) - before:
        added.meta = {**added.meta, **about}
    if isinstance(out, fx.Node):
        node.replace_all_uses_with(out)
    else:
        parts = cast("Sequence[fx.Node]", out)
        for user in list(node.users):  # each takes one of several results
            user.replace_all_uses_with(parts[cast("int", user.args[1])])
            graph.erase_node(user)
    graph.erase_node(node)

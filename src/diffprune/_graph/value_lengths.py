"""Lengths that only values tell, such as how many rows a mask picks.

An export knows no number for them. The graph is run once on the example inputs, and
each result whose shape was open gets the one that it has there.
"""

from collections.abc import Iterator
from typing import Any, Final, cast, final

import torch
from torch import Tensor, fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

_OPEN: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)
INLINED: Final = ("wrap_with_set_grad_enabled", "wrap_with_autocast")
"""Calls that hold a graph of their own and run it as it is."""


def is_inlined(node: fx.Node) -> bool:
    """Whether a node runs a graph within the graph."""
    return any(name in str(node.target) for name in INLINED)


def settle_lengths_(exported: ExportedProgram, inputs: object) -> None:
    """Give every open length in the graph the number that it has for the example.

    Args:
        exported: What was exported for these inputs.
        inputs: Positional and keyword arguments, as they were exported.
    """
    graphs = [
        m for m in exported.graph_module.modules() if isinstance(m, fx.GraphModule)
    ]
    if any(_is_open(node) for graph in graphs for node in graph.graph.nodes):
        with torch.no_grad():
            _Settle(exported.graph_module).run(*_operands(exported, inputs))


def _is_open(node: fx.Node) -> bool:
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(leaf, _OPEN) or _has_open_shape(leaf) for leaf in leaves)


def _has_open_shape(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and any(isinstance(n, _OPEN) for n in leaf.shape)


def _operands(exported: ExportedProgram, inputs: object) -> Iterator[object]:
    """What the placeholders stand for; what a run may write into is a copy."""
    given = iter(pytree.tree_leaves(inputs))
    held = {**exported.constants, **exported.state_dict}
    for spec in exported.graph_signature.input_specs:
        value = (
            next(given) if spec.kind is InputKind.USER_INPUT else held[str(spec.target)]
        )
        yield value.detach().clone() if isinstance(value, Tensor) else value


@final
class _Settle(fx.Interpreter):
    """Runs a graph, and graphs within it, noting what had been open."""

    def run_node(self, n: fx.Node) -> Any:  # noqa: ANN401 - as nested as the result
        """Run a node, and note its result."""
        result = super().run_node(n)
        if _is_open(n):
            n.meta["val"] = pytree.tree_map(_settled, n.meta["val"], result)
        return result

    def call_function(
        self,
        target: Any,  # noqa: ANN401 - any function
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:  # noqa: ANN401 - what it returns
        """Run a function; a graph within the graph as this one."""
        if not any(name in str(target) for name in INLINED):
            return super().call_function(target, args, kwargs)
        inside = next(arg for arg in args if isinstance(arg, fx.GraphModule))
        return _Settle(inside).run(*args[args.index(inside) + 1 :])


def _settled(said: object, found: object) -> object:
    """What was said of a result, without a tensor's numbers."""
    if not _has_open_shape(said):
        return found if isinstance(said, _OPEN) else said
    with cast("Any", said).fake_mode:
        like = cast("Tensor", said)
        shape = cast("Tensor", found).shape
        return torch.empty(shape, dtype=like.dtype, device=like.device)

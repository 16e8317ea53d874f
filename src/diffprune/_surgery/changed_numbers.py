"""Numbers in the code of a model that change with its widths. Knows traces only.

Python does not let an integer see that a float is divided by it: `2.0 / x.shape[1]`
escapes the analysis. When a removal fails because of it, two traces show the number.
"""

from contextlib import suppress
from itertools import starmap

from torch import fx, nn
from torch.utils import _pytree as pytree

from diffprune._graph.infer import where
from diffprune._graph.trace import ExampleInputs, trace
from diffprune.errors import DiffpruneError


def changed_number(
    one: nn.Module, other: nn.Module, inputs: ExampleInputs
) -> str | None:
    """Say which floating-point argument of an op is not the same in both models."""
    with suppress(DiffpruneError):
        graphs = [trace(model, inputs)[0].graph for model in (one, other)]
        pairs = zip(*(graph.nodes for graph in graphs), strict=False)
        return next(filter(None, starmap(_difference, pairs)), None)
    return None


def _difference(one: fx.Node, other: fx.Node) -> str | None:
    pairs = zip(_floats(one), _floats(other), strict=False)
    for before, after in pairs:
        if one.target == other.target and before != after:
            return f"{before:.4g} becomes {after:.4g} in {where(one)}"
    return None


def _floats(node: fx.Node) -> list[float]:
    leaves = pytree.tree_leaves((node.args, node.kwargs))
    return [leaf for leaf in leaves if isinstance(leaf, float)]

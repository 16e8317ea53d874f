"""Hand biases back along a stream. Knows sums and layers, no groups and no plans.

A layer that reads only zeros still adds its bias to the stream it joins. If nothing
else looks at the stream before that, whoever wrote it can add the bias instead, and the
layer has nothing left to say: `(a + b) + c` is `(a + (b + c)) + 0`.
"""

from collections import Counter
from typing import Any, final

import torch
from torch import fx, nn

from diffprune._graph import Silencer, Solution, Step, Value
from diffprune._surgery.dead_units import needed

aten = torch.ops.aten


@torch.no_grad()
def hand_back_(model: nn.Module, silencer: Silencer) -> None:
    """Silence layers that add nothing but a bias, where another can add it."""
    stream = _Stream(silencer.solution)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    # The last one first: what it hands back may have to be handed on.
    for step in reversed(silencer.solution.steps):
        if not step.rule.linear or step.rule.bias is None:
            continue
        place, dim = step.rule.bias
        weight, bias = stream.own(step, step.rule.rows[0][0]), stream.own(step, place)
        if weight is not None and silencer.is_zero(step.args[0]):
            parameters[weight].zero_()
        if weight is None or bias is None or parameters[weight].any():
            continue
        heir = stream.heir(step.node, dim)
        if heir is not None:
            parameters[heir].add_(parameters[bias])
            parameters[bias].zero_()


@final
class _Stream:
    """Who adds what to what, in a solved trace."""

    def __init__(self, solution: Solution) -> None:
        self._solution = solution
        self._makers = {step.node: step for step in solution.steps}
        self._uses = Counter(v for step in solution.steps for v in step.inputs)

    def own(self, step: Step, place: int) -> str | None:
        """The parameter a step has in this place, if nothing else reads it."""
        given: Any = step.args[place] if place < len(step.args) else None
        if not isinstance(given, Value) or self._uses[given] != 1:
            return None
        return given.name if given.name in self._solution.parameter_names else None

    def heir(self, node: fx.Node, dim: int) -> str | None:
        """The bias of what this node is added to, if only the sum reads that."""
        if len(node.users) != 1 or len(self._solution.traces) != 1:
            return None
        (total,) = node.users
        others = [term for term in _terms(total) if term is not node]
        live = needed(self._solution.traces[0].graph, [node])
        if len(others) != 1 or live.intersection(others[0].users) - {node} != {total}:
            return None
        return self._shift(others[0], dim)

    def _shift(self, node: fx.Node, dim: int) -> str | None:
        """The bias that shifts a node: of what makes it, or of one of its terms."""
        step = self._makers.get(node)
        if step is not None and step.rule.bias is not None:
            place, along = step.rule.bias
            return self.own(step, place) if along == dim else None
        terms = (term for term in _terms(node) if len(term.users) == 1)
        found = (self._shift(term, dim) for term in terms)
        return next((bias for bias in found if bias is not None), None)


def _terms(node: fx.Node) -> list[fx.Node]:
    """The terms of a plain sum of equal shapes; none of anything else."""
    if node.target not in (aten.add.Tensor, aten.add_.Tensor) or node.kwargs:
        return []
    terms = node.all_input_nodes
    shapes = {tuple(term.meta["val"].shape) for term in (node, *terms)}
    return terms if len(terms) == 2 and len(shapes) == 1 else []

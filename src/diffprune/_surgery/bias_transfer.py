"""Hand biases back along a stream. Knows sums and layers, no groups and no plans.

A layer that reads only zeros still adds its bias to the stream it joins. If nothing
else looks at the stream before that, whoever wrote it can add the bias instead, and the
layer has nothing left to say: `(a + b) + c` is `(a + (b + c)) + 0`.
"""

from collections import Counter
from typing import final

import torch
from torch import fx, nn

from diffprune._graph import Solution, Step, Value
from diffprune._surgery.dead_units import needed, silencer_of

aten = torch.ops.aten


@torch.no_grad()
def hand_back_(model: nn.Module, solution: Solution) -> None:
    """Silence layers that add nothing but a bias, where another can add it."""
    stream, silencer = _Stream(solution), silencer_of(model, solution)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for (weight, bias), calls in stream.layers().items():
        if all(silencer.is_zero(step.args[0]) for step in calls):
            parameters[weight].zero_()
        if bias is None or parameters[weight].any():
            continue
        heirs = {stream.heir(step) for step in calls}
        heir = heirs.pop() if len(heirs) == 1 else None
        if heir is not None:
            parameters[heir].add_(parameters[bias])
            parameters[bias].zero_()


@final
class _Stream:
    """Who adds what to what, in a solved trace."""

    def __init__(self, solution: Solution) -> None:
        self._solution = solution
        self._makers = {step.node: step for step in solution.steps}
        self._uses = Counter(
            (v, step.node.graph) for step in solution.steps for v in step.inputs
        )
        self._traced = Counter(v for v, _ in self._uses)

    def layers(self) -> dict[tuple[str, str | None], list[Step]]:
        """Linear layers by their own weight and bias, with their call in every trace.

        The last one first: what it hands back may have to be handed on.
        """
        found: dict[tuple[str, str | None], list[Step]] = {}
        for step in reversed(self._solution.steps):
            if step.rule.linear and step.rule.bias is not None:
                weight = self._own(step, step.rule.rows[0][0])
                bias = self._own(step, step.rule.bias[0])
                if weight is not None:
                    found.setdefault((weight, bias), []).append(step)
        return found

    def _own(self, step: Step, place: int) -> str | None:
        """The parameter a step has in this place, if nothing else reads it."""
        given = step.argument(place)
        if not isinstance(given, Value) or self._uses[given, step.node.graph] != 1:
            return None
        is_everywhere = self._traced[given] == len(self._solution.traces)
        is_parameter = given.name in self._solution.parameter_names
        return given.name if is_parameter and is_everywhere else None

    def heir(self, step: Step) -> str | None:
        """The bias of what a layer is added to, if only the sum reads that."""
        node, (_, dim) = step.node, step.rule.bias or (0, 0)
        if len(node.users) != 1:
            return None
        (total,) = node.users
        others = [term for term in _terms(total) if term is not node]
        live = needed(node.graph, [node])
        if len(others) != 1 or live.intersection(others[0].users) - {node} != {total}:
            return None
        return self._shift(others[0], dim)

    def _shift(self, node: fx.Node, dim: int) -> str | None:
        """The bias that shifts a node: of what makes it, or of one of its terms."""
        step = self._makers.get(node)
        if step is not None and step.rule.bias is not None:
            place, along = step.rule.bias
            return self._own(step, place) if along == dim else None
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

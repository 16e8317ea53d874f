"""What every cost is computed from: a traced model and the groups that may shrink."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn

from diffprune._typing import Float
from diffprune.graph import Groups, PruneGroup
from diffprune.graph.axes import Atom
from diffprune.graph.solve import Step
from diffprune.graph.trace import ExampleInputs


@dataclass(frozen=True)
class Network:
    """A dense model, and the groups whose widths a cost is a function of.

    Attributes:
        model: The model, before anything was removed.
        inputs: Its example inputs.
        groups: All its groups.
        gated: Those that may shrink; widths are given in their order.
    """

    model: nn.Module
    inputs: ExampleInputs
    groups: Groups
    gated: Sequence[PruneGroup]

    @property
    def atoms(self) -> list[Atom]:
        """The atoms whose sizes are the widths."""
        return [group.atom for group in self.gated]

    def widths(self) -> Float[Tensor, " groups"]:
        """The widths at which nothing has been removed."""
        return torch.tensor([float(group.size) for group in self.gated]).double()

    def steps(self) -> Iterator[Step]:
        """The ops of one forward pass in eval mode, but for gates."""
        solution = self.groups.solution
        nested = solution.traces[0].owner.modules()
        graphs = {m.graph for m in nested if isinstance(m, fx.GraphModule)}
        for step in solution.steps:
            if step.node.graph in graphs and step.op.namespace != "diffprune":
                yield step


def makes_tensors(step: Step) -> bool:
    """Whether an op makes new tensors, rather than views or changes in place."""
    return all(result.alias_info is None for result in step.op._schema.returns)  # noqa: SLF001 - nothing public says so

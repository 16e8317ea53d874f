"""What every cost is computed from: a traced model and the groups that may shrink."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor, fx, nn

from diffprune._core.types import Bool, Float
from diffprune._graph import Atom, ExampleInputs, Groups, PruneGroup, Step
from diffprune._surgery.apply import apply_plan
from diffprune._surgery.plan import plan_removal

Units: TypeAlias = Bool[Tensor, " units"]


@dataclass(frozen=True)
class Network:
    """A dense model, and the groups whose widths a cost is a function of.

    Attributes:
        model: The model, before anything was removed.
        inputs: Its example inputs.
        groups: All its groups.
        gated: Those that may shrink; widths are given in their order.
        cut: From the units to keep, by name, to a model that has only them; by default
            the groups know how.
    """

    model: nn.Module
    inputs: ExampleInputs
    groups: Groups
    gated: Sequence[PruneGroup]
    cut: Callable[[Mapping[str, Units]], nn.Module] | None = None

    @property
    def atoms(self) -> list[Atom]:
        """The atoms whose sizes are the widths."""
        return [group.atom for group in self.gated]

    def widths(self) -> Float[Tensor, " groups"]:
        """The widths at which nothing has been removed."""
        return torch.tensor([float(group.size) for group in self.gated]).double()

    def narrow(self, widths: Float[Tensor, " groups"]) -> nn.Module:
        """A copy with so many units per group: the first ones, it is about costs."""
        keep = {
            group.name: torch.arange(group.size) < width
            for group, width in zip(self.gated, widths, strict=True)
        }
        if self.cut is not None:
            return self.cut(keep)
        return apply_plan(self.model, plan_removal(self.groups, keep=keep))

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

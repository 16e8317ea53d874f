"""What the loop asks of a pruner (`Trainable`), and one that prunes nothing."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.flop_counter import FlopCounterMode

from diffprune._core.types import Float
from diffprune._graph import ExampleInputs, find_groups, mode
from diffprune._pruner import RemovalRecord
from diffprune._surgery import Plan
from diffprune.errors import DiffpruneError
from diffprune.gates import GateLike
from diffprune.gates.penalty import parameter_groups


class Trainable(Protocol):
    """A model with what its training needs: a `Pruner`, or `NoPruning`."""

    @property
    def model(self) -> nn.Module:
        """The model, as small as it is by now."""
        ...

    @property
    def gates(self) -> Mapping[str, GateLike]:
        """The gates, by name."""
        ...

    @property
    def worth(self) -> Mapping[str, Tensor]:
        """What the units of each gate are worth."""
        ...

    @property
    def plan(self) -> Plan:
        """All removals so far, as one."""
        ...

    @property
    def history(self) -> Sequence[RemovalRecord]:
        """All removals so far, one after the other."""
        ...

    @property
    def dense(self) -> RemovalRecord:
        """What there was before the first removal."""
        ...

    @property
    def example_inputs(self) -> ExampleInputs:
        """What costs are counted for."""
        ...

    def parameter_groups(
        self,
        *,
        lr: float | None = None,
        gate_lr: float | None = None,
        weight_decay: float | None = None,
    ) -> list[dict[str, Any]]:
        """Optimizer groups in which gates are never decayed."""
        ...

    def penalty(self) -> Tensor:
        """What open units cost."""
        ...

    def step(self, *optimizers: Optimizer) -> object:
        """Remove closed units when it is time to."""
        ...

    def shape(self) -> RemovalRecord:
        """What is left of the model now."""
        ...

    def finalize(self) -> nn.Module:
        """Remove all closed units, fold the gates away, and hand the model back."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs beside the tensors of the model."""
        ...

    def load_state_dict(self, state: Mapping[str, Any], *optimizers: Optimizer) -> None:
        """Cut a fresh model to the shapes of a checkpoint."""
        ...


class NoPruning:
    """Trains a model as it is: no gates, no penalty, no removal.

    Args:
        model: The model.
        example_inputs: A batch, to count multiply-adds with.
    """

    def __init__(self, model: nn.Module, example_inputs: Tensor) -> None:
        self.model = model
        self.plan = Plan({}, {}, {})
        self.history: list[RemovalRecord] = []
        self.gates: dict[str, GateLike] = {}
        self.worth: dict[str, Tensor] = {}
        self.steps = 0
        self.example_inputs = example_inputs
        self._macs = _count_macs(model, example_inputs)
        self.dense = self.shape()

    def parameter_groups(
        self,
        *,
        lr: float | None = None,
        gate_lr: float | None = None,
        weight_decay: float | None = None,
    ) -> list[dict[str, Any]]:
        """One optimizer group: all parameters."""
        return parameter_groups(
            self.model, lr=lr, gate_lr=gate_lr, weight_decay=weight_decay
        )[:1]

    def penalty(self) -> Float[Tensor, ""]:
        """Zero."""
        return torch.zeros(())

    def step(self, *optimizers: Optimizer) -> None:
        """Count a step."""
        del optimizers
        self.steps += 1

    def shape(self) -> RemovalRecord:
        """What there is."""
        size = sum(parameter.numel() for parameter in self.model.parameters())
        return RemovalRecord(self.steps, {}, size, self._macs)

    def finalize(self) -> nn.Module:
        """The model, as it is."""
        return self.model

    def state_dict(self) -> dict[str, Any]:
        """What is not in the model."""
        return {"plan": self.plan.to_json(), "steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any], *optimizers: Optimizer) -> None:
        """Read what `state_dict` returned."""
        del optimizers
        self.steps = state["steps"]


def _count_macs(model: nn.Module, example_inputs: Tensor) -> int:
    """Count as the pruner does, so that a dense run can be compared with a pruned one.

    What cannot be traced cannot be pruned either, and torch counts the ops it knows.
    """
    try:
        return find_groups(model, example_inputs).macs()
    except DiffpruneError:
        counter = FlopCounterMode(display=False)
        with counter, mode(model, training=False), torch.no_grad():
            model(example_inputs)
        return counter.get_total_flops() // 2

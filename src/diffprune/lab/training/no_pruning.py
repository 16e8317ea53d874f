"""Train a model as it is, where the loop expects a pruner."""

from collections.abc import Mapping
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.flop_counter import FlopCounterMode

from diffprune._core.types import Float
from diffprune._pruner import Shrinkage
from diffprune._surgery import Plan
from diffprune.gates import Gate
from diffprune.gates.penalty import parameter_groups


@final
class Unpruned:
    """The part of a `Pruner` that training uses, for a model without gates.

    Args:
        model: The model.
        example_inputs: A batch, to count multiply-adds with.
    """

    def __init__(self, model: nn.Module, example_inputs: Tensor) -> None:
        self.model = model
        self.plan = Plan({}, {}, {})
        self.history: list[Shrinkage] = []
        self.gates: dict[str, Gate] = {}
        self.steps = 0
        self.example_inputs = example_inputs
        self._macs = _count_macs(model, example_inputs)
        self.dense = self.shape()

    def parameter_groups(
        self,
        *,
        lr: float | None = None,
        gate_lr: float | None = None,
        weight_decay: float = 0.0,
    ) -> list[dict[str, Any]]:
        """Optimizer groups: the parameters, and no gates."""
        return parameter_groups(
            self.model, lr=lr, gate_lr=gate_lr, weight_decay=weight_decay
        )[:1]

    def penalty(self) -> Float[Tensor, ""]:
        """Nothing is penalised."""
        return torch.zeros(())

    def step(self, optimizer: Optimizer) -> None:
        """Nothing is removed."""
        del optimizer
        self.steps += 1

    def remove_closed_(self, *optimizers: Optimizer) -> None:
        """Nothing is closed."""

    def shape(self) -> Shrinkage:
        """What there is."""
        size = sum(parameter.numel() for parameter in self.model.parameters())
        return Shrinkage(self.steps, {}, size, self._macs)

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


@torch.no_grad()
def _count_macs(model: nn.Module, example_inputs: Tensor) -> int:
    counter = FlopCounterMode(display=False)
    was_training = model.training
    with counter:
        model.eval()(example_inputs)
    model.train(was_training)
    return counter.get_total_flops() // 2

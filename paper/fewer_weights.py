"""Weights that leave one by one while a network is trained, the least worth first.

What a weight is worth is its square times the mean square of its gradient: about what
the loss would rise by without it. Adam keeps that mean anyway. The share of weights
that have left grows along a cubic; a weight that has left is zero and stays so.
"""

import math
from typing import Final, final

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.optim import Optimizer

from diffprune._core.types import Float
from diffprune._pruner import RemovalRecord
from diffprune.errors import ArgumentError
from diffprune.lab.training.no_pruning import NoPruning
from paper.methods.gradual_magnitude import EVERY, share_closed

BEGIN, END = 0.1, 0.5
"""When the first weights leave and when the last, as shares of the training."""
_NAME: Final = "weight"


@final
class FewerWeights(NoPruning):
    """Trains a network of which only some weights are left in the end.

    Tensors keep their shapes. Counted are the parameters that have not left.

    Args:
        model: Its linear layers and convolutions lose weights, and no biases.
        examples: A batch, to count multiply-adds with.
        weights: How many are left in the end, in all layers together.
        steps: Of the whole training.
    """

    def __init__(
        self, model: nn.Module, examples: Tensor, *, weights: int, steps: int
    ) -> None:
        self._present: dict[nn.Module, _Present] = {}
        super().__init__(model, examples)
        for layer in model.modules():
            if isinstance(layer, nn.Linear | nn.Conv2d):
                self._present[layer] = _Present(layer.weight)
        self._total = sum(one.present.numel() for one in self._present.values())
        if not 0 < weights <= self._total:
            raise ArgumentError(
                f"of {self._total:,} weights {weights:,} cannot be left; ask for one "
                "at least, and for no more than there are."
            )
        self._share = 1 - weights / self._total
        self._all_steps, self._last = steps, math.ceil(END * steps)
        for layer, present in self._present.items():
            parametrize.register_parametrization(layer, _NAME, present)

    def step(self, *optimizers: Optimizer) -> None:
        """Let go of what is worth least, every now and then."""
        super().step(*optimizers)
        if self.steps % EVERY == 0 or self.steps == self._last:
            progress = self.steps / self._all_steps
            share = share_closed(progress, self._share, BEGIN, END)
            self._keep_(self._total - round(share * self._total), optimizers[0])

    @torch.no_grad()
    def _keep_(self, count: int, optimizer: Optimizer) -> None:
        """Keep this many weights, of those that are still there."""
        worth = torch.cat(
            [
                present.worth(_original(layer), optimizer).flatten()
                for layer, present in self._present.items()
            ]
        )
        kept = torch.zeros_like(worth).index_fill_(0, worth.topk(count).indices, 1.0)
        sizes = [one.present.numel() for one in self._present.values()]
        for one, own in zip(self._present.values(), kept.split(sizes), strict=True):
            one.present.copy_(own.view_as(one.present))

    def shape(self) -> RemovalRecord:
        """What there is, without the weights that have left."""
        whole = super().shape()
        gone = sum(int((one.present == 0).sum()) for one in self._present.values())
        return RemovalRecord(whole.step, {}, whole.parameters - gone, whole.macs)

    def finalize(self) -> nn.Module:
        """The model with zeros for the weights that have left."""
        self.history.append(self.shape())
        for layer in self._present:
            parametrize.remove_parametrizations(layer, _NAME)
        return self.model


@final
class _Present(nn.Module):
    """Multiplies the weights that have left by zero, and all others by one."""

    present: Float[Tensor, "..."]

    def __init__(self, weight: Float[Tensor, "..."]) -> None:
        super().__init__()
        self.register_buffer("present", torch.ones_like(weight))

    def forward(self, weight: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The weights in use."""
        return weight * self.present

    def worth(self, weight: nn.Parameter, optimizer: Optimizer) -> Float[Tensor, "..."]:
        """What each weight is worth; below zero for those that have left."""
        mean_square = optimizer.state[weight]["exp_avg_sq"]
        return torch.where(self.present > 0, weight.square() * mean_square, -1.0)


def _original(layer: nn.Module) -> nn.Parameter:
    """The weights of a layer, before those that have left are zero."""
    return layer.get_parameter(f"parametrizations.{_NAME}.original")

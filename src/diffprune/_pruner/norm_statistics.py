"""Let batch norms forget what they saw before units left for a budget.

A norm normalises by running statistics once training is over. Right after units have
left, these are of a network that is gone, and at a momentum of 0.1 it takes some twenty
steps until they are of the one that is there. Until then they are a plain mean of what
was seen since.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # no other name for all of them

from diffprune._core.types import Float


@dataclass(frozen=True)
class Statistics:
    """What a norm remembers at some moment.

    Attributes:
        mean: Of every unit.
        var: Of every unit.
        batches: How many it has seen.
    """

    mean: Float[Tensor, " units"]
    var: Float[Tensor, " units"]
    batches: int

    @staticmethod
    def of(norm: _BatchNorm) -> "Statistics":
        """Copy those of a norm."""
        mean, var = (t.detach().clone() for t in _running(norm))
        return Statistics(mean, var, _batches(norm))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        mean, var = self.mean.tolist(), self.var.tolist()
        return {"mean": mean, "var": var, "batches": self.batches}

    @staticmethod
    def read(saved: Mapping[str, Any], norm: _BatchNorm) -> "Statistics":
        """From plain data, where the norm is and of its type."""
        mean, var = _running(norm)
        return Statistics(
            mean.new_tensor(saved["mean"]),
            var.new_tensor(saved["var"]),
            int(saved["batches"]),
        )


class NormStatistics:
    """The norms of a model that are about to learn their statistics anew."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._age = 0
        self._before: dict[str, Statistics] = {}

    def forget_(self) -> None:
        """Begin again: what was seen until now is of another network."""
        self._age = 0
        self._before = {name: Statistics.of(norm) for name, norm in self._norms()}
        for norm in self._model.modules():
            if not isinstance(norm, _BatchNorm) or norm.momentum is not None:
                continue
            # Without a momentum, a norm takes the plain mean of what it counts. So the
            # next batch replaces the statistics; in eval mode they stay.
            if norm.num_batches_tracked is not None:
                norm.num_batches_tracked.zero_()

    def trust_(self) -> None:
        """Take the statistics as they are: somebody has estimated them anew."""
        self._before = {}

    @torch.no_grad()
    def step_(self) -> None:
        """After a training step: weigh what it has shown like every step since then."""
        if not self._before:
            return
        self._age += 1
        norms = dict(self._norms())
        behind = [
            name
            for name, before in self._before.items()
            if _weigh_(norms[name], before, 1 / self._age)
        ]
        self._before = {name: Statistics.of(norms[name]) for name in behind}

    def state_dict(self) -> dict[str, Any] | None:
        """What was seen so far, as plain data; None if there is nothing to forget."""
        if not self._before:
            return None
        before = {name: seen.to_dict() for name, seen in self._before.items()}
        return {"age": self._age, "before": before}

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Go on from there."""
        self._age = 0 if state is None else int(state["age"])
        saved = {} if state is None else state["before"]
        self._before = {
            name: Statistics.read(saved[name], norm)
            for name, norm in self._norms()
            if name in saved
        }

    def _norms(self) -> Iterator[tuple[str, _BatchNorm]]:
        for name, module in self._model.named_modules():
            if not isinstance(module, _BatchNorm):
                continue
            if module.momentum and module.running_mean is not None:
                yield name, module


def _weigh_(norm: _BatchNorm, before: Statistics, weight: float) -> bool:
    """Give what the last step has shown at least this weight; whether it had less."""
    momentum, batches = norm.momentum or 0.0, _batches(norm) - before.batches
    share = 1 - (1 - momentum) ** batches
    if not 0 < share < weight:
        return False
    mean, var = _running(norm)
    for now, then in ((mean, before.mean), (var, before.var)):
        shown = then + (now - then) / share
        now.copy_(then + weight * (shown - then))
    var.clamp_(min=0)
    return True


def _running(norm: _BatchNorm) -> tuple[Tensor, Tensor]:
    return norm.get_buffer("running_mean"), norm.get_buffer("running_var")


def _batches(norm: _BatchNorm) -> int:
    return int(norm.get_buffer("num_batches_tracked"))

"""One short training run of a LeNet-5, gated or not; prints and writes nothing."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR

from diffprune._typing import Bool, Float
from diffprune.gates import Gate
from diffprune.penalty import expected_l0, parameter_groups
from diffprune.recipes.counting import OpenUnits, Widths
from diffprune.recipes.digits import Digits, Examples
from diffprune.recipes.models import LeNet5


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The numbers of a run, chosen on the validation digits.

    With `strength` zero there is no penalty, as there is none without gates.
    """

    epochs: int = 20
    batch_size: int = 50
    lr: float = 2e-3
    gate_lr: float = 1e-2
    strength: float = 1e-4


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """What an epoch came to: mean loss, error in percent, and the units still open."""

    number: int
    loss: float
    validation_error: float
    raw: Widths
    effective: Widths


def train_(model: LeNet5, digits: Digits, recipe: Recipe) -> Iterator[Epoch]:
    """Train in place and report after every epoch; closed gates stay in the model."""
    optimizer = Adam(parameter_groups(model, lr=recipe.lr, gate_lr=recipe.gate_lr))
    # Both learning rates fall towards zero, so that the last epoch is no accident.
    schedule = CosineAnnealingLR(optimizer, T_max=recipe.epochs)
    for number in range(1, recipe.epochs + 1):
        losses = [
            _step_(model, optimizer, batch, recipe.strength)
            for batch in _shuffled(digits.train, recipe.batch_size)
        ]
        schedule.step()
        units = open_units(model)
        yield Epoch(
            number=number,
            loss=torch.stack(losses).mean().item(),
            validation_error=error_rate(model, digits.validation),
            raw=units.raw(),
            effective=units.effective(),
        )


@torch.no_grad()
def error_rate(model: nn.Module, examples: Examples) -> float:
    """Percentage of examples that the model gets wrong."""
    scores = model.eval()(examples.images)
    wrong = scores.argmax(dim=1) != examples.labels
    return 100 * int(wrong.sum()) / len(examples)


def open_units(model: LeNet5) -> OpenUnits:
    """Which units are open; all of them where there is no gate."""
    return OpenUnits(
        conv1=_is_open(model.gate_conv1, model.conv1.out_channels),
        conv2=_is_open(model.gate_conv2, model.conv2.out_channels),
        flat=_is_open(model.gate_flat, model.fc1.in_features),
        fc1=_is_open(model.gate_fc1, model.fc1.out_features),
    )


def _step_(
    model: LeNet5,
    optimizer: Optimizer,
    batch: Examples,
    strength: float,
) -> Float[Tensor, ""]:
    loss = cross_entropy(model.train()(batch.images), batch.labels)
    objective = loss + expected_l0(model, strength) if strength else loss
    optimizer.zero_grad()
    objective.backward()
    optimizer.step()
    return loss.detach()


def _shuffled(examples: Examples, batch_size: int) -> Iterator[Examples]:
    for index in torch.randperm(len(examples)).split(batch_size):
        yield examples.take(index)


def _is_open(gate: nn.Module, size: int) -> Bool[Tensor, " units"]:
    if isinstance(gate, Gate):
        return gate.is_open()
    return torch.ones(size, dtype=torch.bool)

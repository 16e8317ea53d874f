"""A training step of a gated LeNet-5, as a ratio to the same step without gates."""

from collections.abc import Callable

import torch
from torch.nn.functional import cross_entropy
from torch.optim import Adam

from diffprune.gates import Gate
from diffprune.gates.penalty import expected_l0, parameter_groups
from paper.models.lenet5 import LeNet5

from ._timing import Measurement, ratio

RECIPE = {"batch_size": 100, "optimizer": "Adam", "gates": 4, "strength": 1e-4}


def measure() -> tuple[Measurement, ...]:
    """Time forward, backward and optimizer step, penalty included."""
    torch.manual_seed(0)
    return (
        ratio(
            _step(LeNet5(Gate), strength=RECIPE["strength"]),
            _step(LeNet5(), strength=None),
            names=("gated LeNet-5 step", "dense LeNet-5 step"),
            target=1.05,
        ),
    )


def _step(model: LeNet5, *, strength: float | None) -> Callable[[], None]:
    images = torch.rand(RECIPE["batch_size"], 1, 28, 28)
    labels = torch.randint(10, (RECIPE["batch_size"],))
    optimizer = Adam(parameter_groups(model, lr=1e-3, gate_lr=1e-3))

    def step() -> None:
        loss = cross_entropy(model(images), labels)
        if strength is not None:
            loss = loss + expected_l0(model, strength)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step

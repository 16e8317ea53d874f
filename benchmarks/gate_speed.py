"""Forward and backward of a gate, as a ratio to its layer, or to a plain softmax."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks._timing import Measurement, ratio
from diffprune.gates import Gate

RECIPE = {"batch_size": 100, "units_of_the_large_gate": 1_000_000}


def measure() -> tuple[Measurement, ...]:
    """Gates after two layers of LeNet-5, and gates with a million units."""
    torch.manual_seed(0)
    batch = RECIPE["batch_size"]
    return (
        _against_layer(nn.Conv2d(20, 50, 5), torch.rand(batch, 20, 12, 12)),
        _against_layer(nn.Linear(800, 500), torch.rand(batch, 800)),
        _against_softmax("softmax"),
        _against_softmax("sigmoid"),
    )


def _against_layer(layer: nn.Module, x: Tensor) -> Measurement:
    x.requires_grad_()
    y = layer(x).detach().requires_grad_()
    gate = Gate(y.shape[1])
    return ratio(
        _forward_backward(lambda: gate(y), y),
        _forward_backward(lambda: layer(x), y),
        names=(f"gate of {gate.size} units", str(layer)),
    )


def _against_softmax(u: str) -> Measurement:
    gate = Gate(RECIPE["units_of_the_large_gate"], u=u)
    logits = gate.logits
    return ratio(
        _forward_backward(gate.values, logits),
        _forward_backward(lambda: logits.softmax(-1), logits),
        names=(f"{u} gate of {gate.size} units", "torch.softmax of that size"),
        rounds=100,
        target=3.0,
    )


def _forward_backward(
    forward: Callable[[], Tensor], like: Tensor
) -> Callable[[], None]:
    grad = torch.randn_like(like)

    def work() -> None:
        forward().backward(grad)

    return work

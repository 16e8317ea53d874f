"""The laws of gates: exact zeros, finite numbers, and a removal nobody notices."""

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from diffprune._core.arguments import check
from diffprune._core.door import door
from diffprune._core.randomness import seed_torch_, torch_forked
from diffprune._core.types import Amount, Bool, Count, Seed
from diffprune.errors import ArgumentError
from diffprune.gates import Gate
from diffprune.testing.outcomes import assert_close, is_equal


@door
def check_gate(
    make_gate: Callable[[int], Gate],
    *,
    sizes: Sequence[Count] = (2, 7, 50),
    seed: Seed = 0,
    atol: Amount = 1e-9,
) -> None:
    """Hold a kind of gate against the laws, with random units closed.

    - A fresh gate is open, so that training starts from the whole model.
    - In eval mode a unit is closed if and only if its value is exactly zero, and if and
      only if it is open with a probability of at most one half.
    - Values, probabilities and gradients are finite, for extreme logits too.
    - When closed units are removed, values and probabilities of the others stay, and so
      do the gradients; removing in two steps is removing at once.
    - A gate that is loaded from the state of another one has its values.

    Args:
        make_gate: Makes a gate of so many units: `partial(dp.Gate, u="softmax")`.
        sizes: Sizes to try.
        seed: Of the logits.
        atol: How far values of survivors may differ, in double precision.

    Raises:
        AssertionError: If a law is broken.
        ArgumentError: If there is no size to try.

    Examples:
        >>> check_gate(Gate)
        >>> check_gate(lambda size: Gate(size, u="softmax", dropout=0.1))
    """
    if not sizes:
        raise ArgumentError(f"sizes={sizes!r} names no size to try.")
    for size in sizes:
        with torch_forked():
            seed_torch_(seed)
            check("what make_gate returns", Gate, make_gate(size))
            _check_fresh(make_gate(size))
            gate = _closed(make_gate(size))
            _check_zeros(gate)
            _check_finite(make_gate(size))
            _check_removal(gate, atol)
            _check_state(gate, make_gate(size))


def _closed(gate: Gate) -> Gate:
    """The gate in double precision and eval mode, about 40 % of its units closed."""
    gate = gate.double().eval()
    closed = torch.rand(gate.size) < 0.4
    gate.logits.data[closed] -= 5.0
    return gate


def _check_fresh(gate: Gate) -> None:
    if not gate.is_open().all():
        raise AssertionError(f"a fresh gate has closed units: {gate.is_open()}")


def _check_zeros(gate: Gate) -> None:
    values, is_open = gate.values().detach(), gate.is_open()
    if not torch.equal(values != 0, is_open):
        raise AssertionError(f"closed is not zero: {values} but open are {is_open}")
    probability = gate.prob_open().detach()
    clear = (probability - 0.5).abs() > 1e-9  # rounding may decide at the threshold
    if not torch.equal((probability > 0.5)[clear], is_open[clear]):
        raise AssertionError(f"open with {probability}, but open are {is_open}")


def _check_finite(gate: Gate) -> None:
    gate = gate.double().eval()
    extremes = torch.tensor([1e4, -1e4, 0.0], dtype=torch.float64)
    gate.logits.data.copy_(extremes.repeat(gate.size)[: gate.size])
    values, probability = gate.values(), gate.prob_open()
    (values.square().sum() + probability.sum()).backward()
    for what, x in {"values": values, "probabilities": probability}.items():
        if not x.isfinite().all():
            raise AssertionError(f"{what} of extreme logits are not finite: {x}")
    if gate.logits.grad is None or not gate.logits.grad.isfinite().all():
        raise AssertionError(f"their gradient is not finite: {gate.logits.grad}")


def _check_removal(gate: Gate, atol: float) -> None:
    is_open = gate.is_open()
    half = is_open | (torch.arange(gate.size) % 2 == 0)
    at_once, in_turn = copy.deepcopy(gate), copy.deepcopy(gate)
    at_once.keep_(is_open)
    in_turn.keep_(half)
    in_turn.keep_(is_open[half])
    for small in (at_once, in_turn):
        expected, actual = _seen(gate, is_open), _seen(small)
        what = "values, probabilities and gradients of what stays after a removal"
        assert_close(actual, expected, what=what, atol=atol)


def _seen(gate: Gate, keep: Bool[Tensor, " units"] | None = None) -> list[Tensor]:
    """Values, probabilities and the gradient of a loss, of the units that are kept."""
    keep = torch.ones(gate.size, dtype=torch.bool) if keep is None else keep
    values, probability = gate.values()[keep], gate.prob_open()[keep]
    weights = torch.linspace(0.5, 1.5, len(values), dtype=values.dtype)
    loss = (values * weights).sum() + probability.square().sum()
    (gradient,) = torch.autograd.grad(loss, gate.logits)
    return [values.detach(), probability.detach(), gradient[keep]]


def _check_state(gate: Gate, other: Gate) -> None:
    other = other.double().eval()
    other.load_state_dict(gate.state_dict())
    if not is_equal(other.values().detach(), gate.values().detach()):
        raise AssertionError("a gate loaded from the state of another differs from it")

"""The lean route must be indistinguishable from the readable one."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from diffprune.gates import transform as route
from diffprune.gates.transform import transform

pytestmark = [
    pytest.mark.parametrize("u", ["sigmoid", "softmax"]),
    pytest.mark.parametrize("background", [-torch.inf, 1.3]),
    pytest.mark.parametrize("min_open", [0, 2, 9]),
]


@pytest.fixture
def gate(u, background, min_open):
    """A function of sample and spread, with thresholds that close about half."""
    threshold = torch.tensor({"sigmoid": 0.5, "softmax": 0.1}[u], dtype=torch.float64)
    background = torch.tensor(background, dtype=torch.float64)

    def gate(sample, spread):
        return transform(sample, u, background, threshold, spread, min_open=min_open)

    return gate


@pytest.fixture
def lean(gate, monkeypatch):
    def lean(*args):
        with monkeypatch.context() as patch:
            patch.setattr(route, "MANY_UNITS", 1)
            return gate(*args)

    return lean


@pytest.fixture
def inputs():
    sample = torch.randn(4, 7, dtype=torch.float64, requires_grad=True)
    return sample, torch.tensor(0.6, dtype=torch.float64, requires_grad=True)


def test_values_and_gradients_agree(gate, lean, inputs):
    weights = torch.randn(4, 7, dtype=torch.float64)
    readable, fast = gate(*inputs), lean(*inputs)
    torch.testing.assert_close(fast, readable)
    torch.testing.assert_close(
        torch.autograd.grad(fast, inputs, weights),
        torch.autograd.grad(readable, inputs, weights),
    )


def test_first_and_second_derivatives(lean, inputs):
    assert gradcheck(lean, inputs)
    assert gradgradcheck(lean, inputs)


def test_an_ensemble_can_be_mapped(gate, lean, inputs):
    sample, _ = inputs
    spreads = torch.rand(4, 1, dtype=torch.float64)
    torch.testing.assert_close(
        torch.func.vmap(lean)(sample, spreads), gate(sample, spreads)
    )
    loss = torch.func.grad(lambda s, k: lean(s, k).square().sum())
    expected = torch.func.grad(lambda s: gate(s, spreads).square().sum())(sample)
    torch.testing.assert_close(torch.func.vmap(loss)(sample, spreads), expected)


def test_an_ensemble_can_share_its_sample(gate, lean, inputs):
    sample, _ = inputs
    spreads = torch.rand(3, dtype=torch.float64)
    actual = torch.func.vmap(lean, (None, 0))(sample, spreads)
    torch.testing.assert_close(actual, torch.stack([gate(sample, k) for k in spreads]))

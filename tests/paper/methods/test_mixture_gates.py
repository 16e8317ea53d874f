"""The mixture against quadrature, and its gradient against finite differences."""

import pytest
import torch
from scipy import integrate

from paper.methods.mixture_gates import (
    MixtureGate,
    cumulative,
    density,
    mean,
    prob_open,
    quantile,
    sample,
)

RATE = 8.0


def test_the_density_is_one():
    def at(z):
        return float(density(torch.tensor(z).double(), RATE))

    assert integrate.quad(at, 0, 1)[0] == pytest.approx(1.0)
    assert integrate.quad(at, 0, 0.3)[0] == pytest.approx(
        float(cumulative(torch.tensor(0.3).double(), RATE))
    )
    assert integrate.quad(lambda z: z * at(z), 0, 1)[0] == pytest.approx(mean(RATE))


def test_draws_follow_the_distribution_function():
    torch.manual_seed(0)
    z = quantile(torch.rand(200_000), RATE)
    for edge in (0.05, 0.3, 0.8):
        share = (z <= edge).float().mean()
        expected = cumulative(torch.tensor(edge), RATE)
        assert float(share) == pytest.approx(float(expected), abs=0.005)


def test_the_gradient_is_that_of_the_expectation():
    torch.manual_seed(0)
    pi = torch.full((400_000,), 0.4, requires_grad=True)
    sample(pi, RATE).square().mean().backward()
    slope = float(pi.grad.sum())

    def expected(p):
        def term(z):
            at = torch.tensor(z).double()
            mixture = p * density(1 - at, RATE) + (1 - p) * density(at, RATE)
            return z**2 * float(mixture)

        return integrate.quad(term, 0, 1)[0]

    assert slope == pytest.approx((expected(0.41) - expected(0.39)) / 0.02, rel=0.02)


def test_open_probability_is_that_of_draws():
    torch.manual_seed(0)
    gate = MixtureGate(100_000)
    gate.logits.data.fill_(-0.5)
    share = float((gate.values() > 0).float().mean())
    assert share == pytest.approx(gate.penalty().item() / gate.size, abs=0.005)
    assert share == pytest.approx(
        prob_open(gate.logits[0].sigmoid(), 10.0).item(), abs=0.005
    )


def test_in_use_likelier_closed_is_closed():
    gate = MixtureGate(2).eval()
    gate.logits.data = torch.tensor([-0.1, 0.1])
    assert gate.values()[0] == 0
    assert gate.values()[1] > 0.4

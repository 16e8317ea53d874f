"""Truncated log-normals against SciPy's quadrature."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from paper.methods.structured_bayesian_pruning import (
    LogNormalGate,
    divergence,
    moment,
    posterior,
    signal_to_noise,
)

CASES = [(-1.0, 0.5), (-5.0, 3.0), (0.0, math.exp(-5)), (-12.0, 1.0)]
KNOWN = {
    (-1.0, 0.5): (2.3482017, 0.3980688, 2.1703),
    (-5.0, 3.0): (0.6142139, 0.0580990, 0.41485),
    (0.0, math.exp(-5)): (7.2699409, 0.9946465, 246.70),
}


def q(mu, sigma):
    return posterior(torch.tensor(mu).double(), torch.tensor(math.log(sigma)).double())


@pytest.mark.parametrize(("mu", "sigma"), CASES)
def test_divergence_and_moments_are_those_of_quadrature(mu, sigma):
    normal = stats.truncnorm((-20 - mu) / sigma, -mu / sigma, mu, sigma)
    low, high = max(-20, mu - 14 * sigma), min(0, mu + 14 * sigma)

    def over(function):
        return integrate.quad(
            lambda t: normal.pdf(t) * function(t), low, high, limit=400
        )[0]

    gap = over(normal.logpdf) + np.log(20)
    assert float(divergence(q(mu, sigma))) == pytest.approx(gap, abs=1e-5)
    assert float(moment(q(mu, sigma), 1)) == pytest.approx(over(np.exp), rel=1e-6)
    square = over(lambda t: np.exp(2 * t))
    assert float(moment(q(mu, sigma), 2)) == pytest.approx(square, rel=1e-6)


@pytest.mark.parametrize("case", KNOWN)
def test_constants_of_the_literature(case):
    kl, mean, ratio = KNOWN[case]
    assert float(divergence(q(*case))) == pytest.approx(kl, abs=1e-5)
    assert float(moment(q(*case), 1)) == pytest.approx(mean, abs=1e-6)
    assert float(signal_to_noise(q(*case))) == pytest.approx(ratio, rel=1e-4)


def test_gradient_of_the_divergence():
    mu = torch.tensor([-1.0, -5.0, 0.0]).double().requires_grad_()
    log_sigma = torch.tensor([-0.7, 1.1, -2.0]).double().requires_grad_()
    inside = lambda m, s: divergence(posterior(m, s))  # noqa: E731 - for gradcheck
    assert torch.autograd.gradcheck(inside, (mu, log_sigma))


def test_draws_have_the_posterior_mean():
    torch.manual_seed(0)
    gate = LogNormalGate(100_000)
    gate.mu.data.fill_(-1.0)
    gate.log_sigma.data.fill_(math.log(0.5))
    assert gate.values().mean().item() == pytest.approx(0.39807, abs=0.002)


def test_noise_closes_a_unit_in_use():
    gate = LogNormalGate(2).eval()
    gate.mu.data = torch.tensor([-1.0, -5.0])
    gate.log_sigma.data = torch.tensor([math.log(0.5), math.log(3.0)])
    assert gate.is_open().tolist() == [True, False]
    assert gate.values()[1] == 0
    assert gate.reopening().tolist() == [1.0, 1.0]


def test_gates_start_as_published():
    gate = LogNormalGate(3)
    assert gate.mu.tolist() == [0.0] * 3
    assert gate.log_sigma.tolist() == [-5.0] * 3


def test_parameters_stay_where_the_posterior_can_be_computed():
    q = posterior(torch.tensor([-30.0, 9.0]), torch.tensor([-30.0, 9.0]))
    assert q.mu.tolist() == [-20.0, 5.0]
    assert q.sigma.log().tolist() == pytest.approx([-20.0, 5.0])


def test_no_draw_leaves_the_interval():
    """Of a posterior whose mass is nearly all above it, the levels are clipped."""
    gate = LogNormalGate(1_000)
    gate.mu.data.fill_(5.0)
    assert gate.values().max() <= 1.0
    gate.mu.data.fill_(-20.0)
    gate.log_sigma.data.fill_(3.0)
    assert gate.values().log().min() >= -20.001


def test_in_use_a_gate_is_its_mean_and_its_margin_the_ratio():
    gate = LogNormalGate(3).eval()
    gate.mu.data = torch.tensor([case[0] for case in KNOWN])
    gate.log_sigma.data = torch.tensor([math.log(case[1]) for case in KNOWN])
    penalties, means, ratios = zip(*KNOWN.values(), strict=True)
    assert gate.penalty().item() == pytest.approx(sum(penalties), rel=1e-5)
    assert gate.margin().exp().tolist() == pytest.approx(ratios, rel=1e-3)
    assert gate.values().tolist() == pytest.approx([means[0], 0.0, means[2]], rel=1e-4)

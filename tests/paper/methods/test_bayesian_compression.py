"""Divergences of the horseshoe against Monte Carlo, and what both gates draw."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from paper.methods.bayesian_compression import (
    Horseshoe,
    NormalJeffreys,
    gamma_divergence,
    inverse_gamma_divergence,
)
from paper.methods.log_uniform import divergence


def by_quadrature(m, v, log_prior):
    normal = stats.norm(m, math.sqrt(v))

    def term(t):
        # t = log x: the prior of t is that of x times x.
        return normal.pdf(t) * (normal.logpdf(t) - log_prior(np.exp(t)) - t)

    width = 10 * math.sqrt(v)
    return integrate.quad(term, m - width, m + width, limit=400)[0]


@pytest.mark.parametrize(("m", "v", "scale"), [(-0.5, 0.3, 1.0), (-2.0, 0.1, 0.2)])
def test_divergences_are_those_of_quadrature(m, v, scale):
    at = torch.tensor(m).double(), torch.tensor(v).double()
    gamma = by_quadrature(m, v, stats.gamma(0.5, scale=scale).logpdf)
    assert float(gamma_divergence(*at, scale)) == pytest.approx(gamma, abs=1e-6)
    inverse = by_quadrature(m, v, stats.invgamma(0.5).logpdf)
    assert float(inverse_gamma_divergence(*at)) == pytest.approx(inverse, abs=1e-6)


def test_constants_of_the_literature():
    at = torch.tensor(-0.5).double(), torch.tensor(0.3).double()
    assert float(gamma_divergence(*at)) == pytest.approx(0.7101009, abs=1e-6)
    assert float(inverse_gamma_divergence(*at)) == pytest.approx(1.4209536, abs=1e-6)


def test_a_half_cauchy_is_the_root_of_that_product():
    rng = np.random.default_rng(0)
    n = 200_000
    product = stats.gamma(0.5, scale=4.0).rvs(n, random_state=rng)
    product *= stats.invgamma(0.5).rvs(n, random_state=rng)
    expected = stats.halfcauchy(scale=2.0).ppf([0.25, 0.5, 0.75])
    assert np.quantile(np.sqrt(product), [0.25, 0.5, 0.75]) == pytest.approx(
        expected, rel=0.02
    )


def test_draws_have_the_spread_of_the_posterior():
    torch.manual_seed(0)
    gate = NormalJeffreys(3)
    gate.log_var.data.fill_(math.log(0.25))
    drawn = gate.draw(50_000)
    assert drawn.std(0).tolist() == pytest.approx([0.5] * 3, abs=0.01)
    horseshoe = Horseshoe(3)
    horseshoe.log_var.data.fill_(math.log(0.2))
    horseshoe.layer_log_var.data.fill_(math.log(0.1))
    logs = horseshoe.draw(50_000).log()
    mean, variance = horseshoe.log_scale()
    torch.testing.assert_close(logs.mean(0), mean, atol=0.01, rtol=0)
    torch.testing.assert_close(logs.var(0), variance, atol=0.01, rtol=0)
    # The layer's part is common to all units.
    shared = torch.cov(logs.detach().T)[0, 1]
    assert float(shared) == pytest.approx(0.05, abs=0.01)


def test_noisy_units_are_closed():
    gate = NormalJeffreys(2).eval()
    gate.mean.data = torch.tensor([1.0, 0.01])
    gate.log_var.data = torch.tensor([-9.0, 0.0])
    assert gate.is_open().tolist() == [True, False]
    assert gate.values().tolist() == pytest.approx([1.0, 0.0])
    assert gate.penalty() > 0


def test_the_horseshoe_tells_small_scales_from_large_ones():
    gate = Horseshoe(4).eval()
    assert gate.is_open().all()  # all alike
    gate.mean.data[:2] = -6.0
    assert gate.is_open().tolist() == [False, False, True, True]
    gate.keep_(gate.is_open())
    assert gate.size == 2
    assert gate.layer_mean.shape == (2,)
    assert gate.is_open().all()


def test_a_cut_fixes_what_counts_as_closed():
    gate = Horseshoe(6).eval()
    gate.mean.data[:, 0] = torch.tensor([-12.0, -11.0, -5.0, -4.0, 0.0, 0.0])
    expected = gate.is_open()
    assert expected.tolist() == [False, False, True, True, True, True]
    gate.keep_(expected)
    assert gate.is_open().all()  # the middle of those that stay would close two
    again = Horseshoe(4)
    again.load_state_dict(gate.state_dict())
    assert again.is_open().all()


def test_scales_start_as_published():
    torch.manual_seed(0)
    gate = NormalJeffreys(10_000)
    for values, start in ((gate.mean, 1.0), (gate.log_var, -9.0)):
        assert values.mean().item() == pytest.approx(start, abs=1e-3)
        assert values.std().item() == pytest.approx(0.01, rel=0.05)
    horseshoe = Horseshoe(2)
    assert horseshoe.layer_mean.tolist() == [-3.0, 0.0]
    assert horseshoe.mean.tolist() == [[0.0, 0.0]] * 2
    for log_var in (horseshoe.log_var, horseshoe.layer_log_var):
        assert log_var.unique().tolist() == [-9.0]


def test_a_scale_with_as_much_noise_as_signal_is_closed():
    gate = NormalJeffreys(2).eval()
    gate.mean.data = torch.tensor([0.5, 0.5])
    gate.log_var.data = torch.tensor([0.24, 0.26]).log()
    assert gate.is_open().tolist() == [True, False]
    known = divergence(torch.log(torch.tensor([0.24, 0.26]) / 0.25)).sum()
    torch.testing.assert_close(gate.penalty(), known)


def test_the_penalty_of_the_horseshoe_is_that_of_all_its_variables():
    """Two of each unit and two of the layer, whose Gamma prior has its own scale."""
    gate = Horseshoe(2).double()
    gate.mean.data = torch.tensor([[-0.5, 0.3], [-1.0, 0.7]]).double()
    gate.log_var.data = torch.tensor([[0.3, 0.2], [0.1, 0.4]]).double().log()
    gate.layer_mean.data = torch.tensor([-9.0, 0.2]).double()
    gate.layer_log_var.data = torch.tensor([0.2, 0.1]).double().log()
    priors = stats.gamma(0.5).logpdf, stats.invgamma(0.5).logpdf
    of_layer = stats.gamma(0.5, scale=1e-5).logpdf, priors[1]
    expected = sum(
        by_quadrature(m, math.exp(v), prior)
        for means, log_vars, both in (
            (gate.mean[0], gate.log_var[0], priors),
            (gate.mean[1], gate.log_var[1], priors),
            (gate.layer_mean, gate.layer_log_var, of_layer),
        )
        for m, v, prior in zip(means.tolist(), log_vars.tolist(), both, strict=True)
    )
    assert gate.penalty().item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("apart", "is_open"), [(0.9, True), (1.1, False)])
def test_units_are_told_apart_by_their_log_modes(apart, is_open):
    """A log-mode is the mean less the variance, of the logarithm."""
    gate = Horseshoe(3).eval()
    gate.log_var.data.fill_(-40.0)
    gate.log_var.data[0, 0] = math.log(2.0)  # a variance of 1/2
    gate.mean.data[0, 0] = -2 * (apart - 0.5)
    assert gate.is_open().tolist() == [is_open, True, True]
    mean, variance = gate.log_scale()
    level = (variance - mean).tolist()
    assert level[0] - level[1] == pytest.approx(apart)
    gate.margin().sum().backward()
    torch.testing.assert_close(gate.mean.grad, torch.full((3, 2), 0.5))


def test_in_use_a_scale_is_its_median():
    gate = Horseshoe(2, threshold=9.0).eval()
    gate.mean.data = torch.tensor([[0.2, 0.4], [-0.6, 0.2]])
    expected = [math.exp((0.6 - 3) / 2), math.exp((-0.4 - 3) / 2)]
    assert gate.values().tolist() == pytest.approx(expected)

"""The approximation against quadrature, and the constants of the literature."""

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from paper.methods import log_uniform


def exact(log_alpha):
    """E log|z| over z ~ N(1, alpha), and the entropy; zero in the limit of noise."""
    scale = np.exp(log_alpha / 2)

    def term(z):
        return stats.norm.pdf(z, 1.0, scale) * np.log(abs(z))

    low, high = 1 - 12 * scale, 1 + 12 * scale
    parts = [(low, 0.0), (0.0, high)] if low < 0 < high else [(low, high)]
    mean_log = sum(integrate.quad(term, *part, limit=400)[0] for part in parts)
    # For alpha to infinity the divergence goes to zero by convention.
    constant = (np.euler_gamma + np.log(2)) / 2
    return mean_log - log_alpha / 2 + constant


@pytest.mark.parametrize("log_alpha", [-4.0, -2.0, 0.0, 2.0, 3.0, 5.0])
def test_the_fit_is_close_to_quadrature(log_alpha):
    fitted = float(log_uniform.divergence(torch.tensor(log_alpha).double()))
    assert fitted == pytest.approx(exact(log_alpha), abs=0.012)


def test_constants_of_the_literature():
    at = torch.tensor([-4.0, -2.0, 0.0, 2.0, 3.0, 5.0]).double()
    known = [2.63421, 1.54053, 0.43124, 0.06842, 0.02542, 0.00342]
    assert log_uniform.divergence(at).tolist() == pytest.approx(known, abs=1e-5)


def test_gradient():
    at = torch.linspace(-6, 6, 9).double().requires_grad_()
    assert torch.autograd.gradcheck(log_uniform.divergence, at)


def test_alpha_is_variance_over_squared_mean():
    mean = torch.tensor([-0.5, 2.0, 1e-4, 0.0]).double()
    log_var = torch.tensor([-3.0, 0.0, -9.0, -2.0]).double()
    expected = log_var - torch.log(mean**2 + 1e-8)
    torch.testing.assert_close(log_uniform.log_alpha(mean, log_var), expected)
    assert log_uniform.log_alpha(mean, log_var)[3].item() == pytest.approx(16.4206807)

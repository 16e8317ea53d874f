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

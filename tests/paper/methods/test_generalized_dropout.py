"""The Beta prior against SciPy, and both estimators against expectations."""

import pytest
import torch
from scipy import stats

from paper.methods.generalized_dropout import GeneralizedDropout, beta_penalty


@pytest.mark.parametrize(("a", "b"), [(1e-4, 0.5), (2.0, 3.0), (1.0, 1.0)])
def test_the_penalty_is_minus_the_log_density(a, b):
    k = torch.tensor([0.1, 0.5, 0.9]).double()
    expected = -stats.beta(a, b).logpdf(k.numpy())
    torch.testing.assert_close(beta_penalty(k, a, b), torch.from_numpy(expected))


def test_the_penalty_is_finite_at_the_ends():
    k = torch.tensor([0.0, 1.0], requires_grad=True)
    beta_penalty(k, 1e-4, 0.5).sum().backward()
    assert k.grad.isfinite().all()


@pytest.mark.parametrize("estimator", ["straight-through", "relaxed"])
def test_draws_have_the_mean_of_the_probability(estimator):
    torch.manual_seed(0)
    gate = GeneralizedDropout(3, estimator=estimator)
    drawn = gate.draw(40_000)
    assert drawn.shape == (40_000, 3)
    assert drawn.mean().item() == pytest.approx(
        gate.probabilities()[0].item(), abs=0.01
    )


def test_straight_through_draws_are_binary_with_the_gradient_of_the_identity():
    gate = GeneralizedDropout(2, estimator="straight-through")
    drawn = gate.draw(100)
    assert set(drawn.unique().tolist()) <= {0.0, 1.0}
    drawn.sum().backward()
    assert gate.logits.grad.tolist() == [100.0, 100.0]


def test_in_use_units_are_closed_exactly():
    gate = GeneralizedDropout(3).eval()
    gate.logits.data = torch.tensor([-9.0, 0.0, 9.0])
    assert gate.values()[0] == 0
    assert gate.is_open().tolist() == [False, True, True]
    straight = GeneralizedDropout(2, estimator="straight-through").eval()
    straight.logits.data = torch.tensor([0.4, 0.6])
    assert straight.values().tolist() == [0.0, 1.0]

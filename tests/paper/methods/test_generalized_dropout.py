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


@pytest.mark.parametrize("estimator", ["straight-through", "relaxed"])
def test_gates_start_and_are_pulled_as_in_public_code(estimator):
    gate = GeneralizedDropout(4, estimator=estimator)
    assert gate.probabilities().tolist() == pytest.approx([0.6321] * 4, abs=1e-4)
    expected = -4 * stats.beta(1e-4, 0.5).logpdf(0.6321)
    assert gate.penalty().item() == pytest.approx(expected, rel=1e-4)
    assert torch.equal(gate.reopening(), gate.probabilities())


def test_a_probability_at_an_end_costs_what_one_next_to_it_does():
    at = torch.tensor([0.0, 1.0]).double()
    expected = -stats.beta(1e-4, 0.5).logpdf([1e-6, 1 - 1e-6])
    torch.testing.assert_close(beta_penalty(at, 1e-4, 0.5), torch.from_numpy(expected))


def test_a_relaxed_draw_is_that_of_its_formula():
    gate = GeneralizedDropout(3)
    gate.logits.data = torch.tensor([-1.0, 0.0, 2.0])
    torch.manual_seed(1)
    u = torch.rand(5, 3)
    torch.manual_seed(1)
    expected = torch.sigmoid((torch.log(u / (1 - u)) + gate.logits) / 0.1)
    torch.testing.assert_close(gate.draw(5), expected, atol=1e-4, rtol=1e-3)


def test_what_counts_as_closed_in_use():
    gate = GeneralizedDropout(2).eval()
    gate.logits.data = torch.tensor([0.0009, 0.0011]).logit()
    assert gate.values().tolist() == pytest.approx([0.0, 0.0011])
    straight = GeneralizedDropout(2, estimator="straight-through").eval()
    straight.logits.data = torch.tensor([0.49, 0.51])
    assert straight.is_open().tolist() == [False, True]


def test_a_probability_that_a_step_has_led_out_of_its_range_is_clipped():
    straight = GeneralizedDropout(3, estimator="straight-through")
    straight.logits.data = torch.tensor([-0.2, 0.4, 1.3])
    straight.clip_()
    assert straight.logits.tolist() == pytest.approx([1e-6, 0.4, 1 - 1e-6])
    relaxed = GeneralizedDropout(3)
    relaxed.logits.data = torch.tensor([-2.0, 0.4, 3.0])
    relaxed.clip_()
    assert relaxed.logits.tolist() == pytest.approx([-2.0, 0.4, 3.0])

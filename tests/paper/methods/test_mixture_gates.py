"""The mixture against quadrature, and its gradient against finite differences."""

import pytest
import torch
from scipy import integrate

import diffprune as dp
from paper.methods.hard_concrete import stretch
from paper.methods.mixture_gates import (
    MixtureGate,
    cumulative,
    density,
    mean,
    quantile,
    sample,
    sharpen_,
)
from paper.models.lenet5 import LeNet5

RATE = torch.tensor(8.0).double()


def test_the_density_is_one():
    def at(z):
        return float(density(torch.tensor(z).double(), RATE))

    assert integrate.quad(at, 0, 1)[0] == pytest.approx(1.0)
    assert integrate.quad(at, 0, 0.3)[0] == pytest.approx(
        float(cumulative(torch.tensor(0.3).double(), RATE))
    )
    assert integrate.quad(lambda z: z * at(z), 0, 1)[0] == pytest.approx(
        float(mean(RATE))
    )


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
    gate = MixtureGate(100_000, rate=10.0)
    gate.logits.data.fill_(-0.5)
    share = float((gate.values() > 0).float().mean())
    assert share == pytest.approx(gate.penalty().item() / gate.size, abs=0.005)


def test_in_use_units_have_their_mean_stretched():
    torch.manual_seed(0)
    gate, rate = MixtureGate(3, rate=50.0).eval(), torch.tensor(50.0)
    gate.logits.data = torch.tensor([-4.0, -0.5, 3.0])
    draws = [sample(gate.logits.sigmoid(), rate).detach() for _ in range(20_000)]
    expected = stretch(torch.stack(draws).mean(0))
    torch.testing.assert_close(gate.values(), expected, atol=0.01, rtol=0)
    assert gate.is_open().tolist() == [False, True, True]
    assert gate.values()[0] == 0


def test_densities_converge_and_units_close_only_then():
    model = LeNet5(MixtureGate)
    model.gate_fc1.logits.data.fill_(-6.0)
    leaks = []
    for progress in (0.0, 0.5, 1.0):
        sharpen_(model, progress)
        leaks.append(model.gate_fc1.penalty().item() / 500)
    assert model.gate_fc1.rate == pytest.approx(100.0)
    assert leaks[0] > 0.5 > leaks[1] > 0.06 > leaks[2]
    assert not model.gate_fc1.is_open().any()
    sharpen_(model, 0.0)
    assert model.gate_fc1.is_open().all()


def test_densities_are_where_they_were_after_a_checkpoint():
    gate = MixtureGate(5, rate=30.0)
    fresh = MixtureGate(5)
    fresh.load_state_dict(gate.state_dict())
    assert fresh.rate == 30


def test_what_is_closed_in_the_end_is_removed():
    torch.manual_seed(0)
    model = LeNet5(MixtureGate).eval()
    images = torch.rand(4, 1, 28, 28)
    pruner = dp.Pruner(model, images, strength=0.0)
    sharpen_(model, 1.0)
    model.gate_fc1.logits.data[:400] = -5.0
    expected = model(images)
    small = pruner.finalize()
    assert small.fc1.out_features == 100
    torch.testing.assert_close(small(images), expected, atol=1e-5, rtol=1e-4)


def test_gates_start_open():
    torch.manual_seed(0)
    logits = MixtureGate(10_000).logits
    assert logits.mean().item() == pytest.approx(1.0, abs=1e-3)
    assert logits.std().item() == pytest.approx(0.01, rel=0.05)

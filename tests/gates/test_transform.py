import pytest
import torch
from hypothesis import given, strategies as st
from torch.autograd import gradcheck, gradgradcheck

from diffprune.gates import g

U = pytest.mark.parametrize("u", ["sigmoid", "softmax", torch.special.ndtr], ids=str)
samples = st.lists(st.floats(-50, 50), min_size=1, max_size=12)


def paper(p: list[float], beta: float, zeta: float) -> list[float]:
    """Equations (eff_a) to (eff_e), word for word."""
    z_tilde = [max(p_k - beta, 0.0) for p_k in p]
    z_plus = [z for z in z_tilde if z > 0]
    mean = sum(z_plus) / max(len(z_plus), 1)
    scale = torch.tensor(-zeta, dtype=torch.float64).exp().item()
    return [(z - mean) * scale + 1 if z > 0 else 0.0 for z in z_tilde]


@U
@given(samples, st.floats(0.01, 0.99), st.floats(0, 30))
def test_g_is_the_papers_equations(u, sample, beta, zeta):
    sample = torch.tensor(sample, dtype=torch.float64)
    p = {"sigmoid": torch.sigmoid, "softmax": lambda s: s.softmax(0)}.get(u, u)(sample)
    actual = g(sample, u, beta, zeta).tolist()
    assert actual == pytest.approx(paper(p.tolist(), beta, zeta), abs=1e-12)


@U
@given(samples)
def test_open_values_are_positive_and_average_one(u, sample):
    z = g(torch.tensor(sample, dtype=torch.float64), u, beta=0.1)
    is_open = z[z != 0]
    assert (is_open > 0).all()
    assert is_open.mean().item() == pytest.approx(1.0) or not len(is_open)


@U
def test_all_closed_is_all_zero_with_zero_gradient(u):
    sample = torch.full((5,), -9.0, requires_grad=True)
    z = g(sample, u, beta=0.9)
    z.sum().backward()
    assert z.tolist() == [0.0] * 5
    assert sample.grad.tolist() == [0.0] * 5


@U
def test_a_lone_open_unit_is_one_and_has_a_degenerate_gradient(u):
    sample = torch.tensor([5.0, -5.0, -6.0], requires_grad=True)
    z = g(sample, u, beta=0.5)
    (z * torch.tensor([3.0, 1.0, 2.0])).sum().backward()
    assert z.tolist() == [1.0, 0.0, 0.0]
    assert sample.grad.abs().max() == 0


@U
def test_two_open_units_have_a_gradient(u):
    sample = torch.tensor([0.5, 0.4, -20.0], requires_grad=True)
    (g(sample, u, beta=0.1) * torch.tensor([3.0, 1.0, 2.0])).sum().backward()
    assert (sample.grad[:2].abs() > 1e-3).all()


@U
def test_gates_become_binary_as_zeta_grows(u):
    sample = torch.tensor([2.0, 1.0, 1.5, -9.0])
    deviation = [(g(sample, u, 0.1, zeta)[:3] - 1).abs().max() for zeta in (0, 4, 16)]
    assert deviation[0] > deviation[1] > deviation[2]
    assert g(sample, u, 0.1, torch.inf).tolist() == [1.0, 1.0, 1.0, 0.0]


@U
@pytest.mark.parametrize("units", [2, 7])
def test_gradients_of_g(u, units):
    sample = torch.randn(3, units, dtype=torch.float64, requires_grad=True)
    zeta = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)

    def both(sample, zeta):
        return g(sample, u, 0.9 / units, zeta)

    assert gradcheck(both, (sample, zeta))
    assert gradgradcheck(both, (sample, zeta))


def test_each_unit_may_have_its_own_threshold():
    z = g(torch.zeros(3), beta=torch.tensor([0.4, 0.6, 0.4]))
    assert z.tolist() == [1.0, 0.0, 1.0]


def test_leading_dimensions_are_independent_gates():
    samples = torch.randn(2, 3, 5)
    expected = torch.stack([torch.stack([g(s) for s in row]) for row in samples])
    torch.testing.assert_close(g(samples), expected)

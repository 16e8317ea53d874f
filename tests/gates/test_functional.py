import pytest
import torch
from hypothesis import given, strategies as st
from scipy.special import logit, logsumexp, softmax
from scipy.stats import norm
from torch.autograd import gradcheck, gradgradcheck

from diffprune.gates import functional as F

NOTHING = torch.tensor(-torch.inf, dtype=torch.float64)
REMOVED = torch.tensor(0.7, dtype=torch.float64)
BACKGROUNDS = pytest.mark.parametrize("background", [NOTHING, REMOVED], ids=repr)
numbers = st.floats(-30, 30, allow_subnormal=False)


def vector(*entries: float) -> torch.Tensor:
    return torch.tensor(entries, dtype=torch.float64, requires_grad=True)


def cube(x):
    """A callable u: neither sigmoid nor softmax, yet into (0, 1)."""
    return (x**3).sigmoid()


LOGITS = vector(0.3, -1.2, 2.0, 0.1)
MASK = torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64)
SPREAD = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
PURE = {
    "sigmoid": (lambda s: F.activate(s, "sigmoid", NOTHING), LOGITS),
    "softmax": (lambda s: F.activate(s, "softmax", NOTHING), LOGITS),
    "softmax, some removed": (lambda s: F.activate(s, "softmax", REMOVED), LOGITS),
    "callable": (lambda s: F.activate(s, cube, NOTHING), LOGITS),
    "log-odds": (lambda s: F.log_odds(s, "softmax", NOTHING), LOGITS),
    "log-odds, some removed": (lambda s: F.log_odds(s, "softmax", REMOVED), LOGITS),
    "log-odds, callable": (lambda s: F.log_odds(s, cube, NOTHING), LOGITS),
    "log-odds, one dominates": (
        lambda s: F.log_odds(s, "softmax", NOTHING),
        vector(60.0, 0.1, -0.3),
    ),
    "log-odds, last survivor": (
        lambda s: F.log_odds(s, "softmax", REMOVED),
        vector(0.4),
    ),
    "margin": (lambda x: F.margin(x, REMOVED), LOGITS),
    "open probability": (lambda m: F.open_probability(m, 1.3), LOGITS),
    "centre": (lambda x: F.centre_open(x, MASK), LOGITS),
    "values": (lambda p: F.gate_values(p, MASK, SPREAD), LOGITS),
    "values, by spread": (lambda k: F.gate_values(LOGITS, MASK, k), SPREAD),
    "reflect above zero": (F.reflect, vector(0.5)),
    "reflect below zero": (F.reflect, vector(-0.5)),
}


@pytest.mark.parametrize(("function", "at"), PURE.values(), ids=PURE)
def test_gradients_match_finite_differences(function, at):
    assert gradcheck(function, at)
    assert gradgradcheck(function, at)


@BACKGROUNDS
@given(entries=st.lists(numbers, min_size=2, max_size=9))
def test_softmax_log_odds_leave_one_out(background, entries):
    expected = [
        entry - logsumexp([*entries[:k], *entries[k + 1 :], background.item()])
        for k, entry in enumerate(entries)
    ]
    actual = F.softmax_log_odds(vector(*entries).detach(), background)
    torch.testing.assert_close(actual, vector(*expected).detach())


@BACKGROUNDS
@given(entries=st.lists(numbers, min_size=2, max_size=9))
def test_softmax_activation_matches_scipy(background, entries):
    expected = softmax([*entries, background.item()])[:-1]
    actual = F.activate(vector(*entries).detach(), "softmax", background)
    torch.testing.assert_close(actual, vector(*expected).detach())


@pytest.mark.parametrize("u", ["sigmoid", "softmax"])
def test_log_odds_are_those_of_the_activation(u):
    activation = F.activate(LOGITS, u, REMOVED).detach().numpy()
    torch.testing.assert_close(
        F.log_odds(LOGITS, u, REMOVED).detach(), torch.as_tensor(logit(activation))
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("extreme", [1e4, -1e4])
def test_extreme_logits_have_finite_first_and_second_derivatives(dtype, extreme):
    logits = torch.tensor([extreme, 0.0, 1.0], dtype=dtype, requires_grad=True)
    odds = F.softmax_log_odds(logits, torch.tensor(-torch.inf))
    (first,) = torch.autograd.grad(odds.square().sum(), logits, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), logits)
    assert all(x.isfinite().all() for x in (odds, first, second))


@given(margin=st.floats(-37, 8), sigma=st.floats(0.1, 10))
def test_open_probability_matches_scipy_in_the_tails(margin, sigma):
    actual = F.open_probability(vector(margin).detach() * sigma, sigma)
    expected = torch.as_tensor([norm.cdf(margin)])
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=0.0)


@given(entries=st.lists(st.tuples(numbers, st.booleans()), min_size=1, max_size=9))
def test_centring_is_an_orthogonal_projection(entries):
    x = vector(*(number for number, _ in entries)).detach()
    mask = vector(*(float(is_open) for _, is_open in entries)).detach()
    once = F.centre_open(x, mask)
    torch.testing.assert_close(F.centre_open(once, mask), once)
    torch.testing.assert_close(
        once @ (x - once), vector(0.0)[0].detach(), atol=1e-9, rtol=0
    )


@pytest.mark.parametrize("raw", [-2.0, 0.0, 2.0])
def test_reflection_is_non_negative_and_never_flat(raw):
    raw = torch.tensor(raw, requires_grad=True)
    reflected = F.reflect(raw)
    reflected.backward()
    assert reflected >= 0
    assert raw.grad.abs() == 1

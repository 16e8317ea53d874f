import pytest
import scipy.stats
import torch
from torch.distributions import (
    AffineTransform,
    Cauchy,
    Distribution,
    Gumbel,
    Independent,
    Laplace,
    LowRankMultivariateNormal,
    MultivariateNormal,
    Normal,
    Poisson,
    SigmoidTransform,
    StudentT,
    TransformedDistribution,
    Uniform,
    constraints,
)

from diffprune.errors import ArgumentError
from diffprune.gates import ApproximateBernoulli

LOC = torch.tensor([-1.0, 0.2, 0.9], dtype=torch.float64)
SCALE = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
FACTOR = torch.tensor([[1.0], [0.7], [-0.4]], dtype=torch.float64)
COVARIANCE = FACTOR @ FACTOR.T + SCALE.diag()
BETA = torch.tensor([0.3, 0.5, 0.6], dtype=torch.float64)
CUT = BETA.logit()


def logistic(loc, scale):
    uniform = Uniform(torch.zeros_like(loc), torch.ones_like(loc))
    return TransformedDistribution(
        uniform, [SigmoidTransform().inv, AffineTransform(loc, scale)]
    )


class Triangular(Distribution):
    """A user's own: the sum of two uniforms on [-1, 1], shifted."""

    has_rsample = True
    arg_constraints = {}  # noqa: RUF012 - torch's own convention

    def __init__(self, loc):
        self.loc = loc
        super().__init__(loc.shape, validate_args=False)

    def rsample(self, sample_shape=()):
        noise = torch.rand(2, *sample_shape, *self.loc.shape, dtype=self.loc.dtype)
        return self.loc + (2 * noise - 1).sum(0)

    def cdf(self, value):
        x = (value - self.loc).clamp(-2, 2)
        return 0.5 + x.sign() * (x.abs() / 2 - x**2 / 8)


def gaussian(variance):
    return scipy.stats.norm(LOC, variance.sqrt())


BASES = {
    "normal": (Normal(LOC, SCALE), scipy.stats.norm(LOC, SCALE)),
    "logistic": (logistic(LOC, SCALE), scipy.stats.logistic(LOC, SCALE)),
    "laplace": (Laplace(LOC, SCALE), scipy.stats.laplace(LOC, SCALE)),
    "gumbel": (Gumbel(LOC, SCALE), scipy.stats.gumbel_r(LOC, SCALE)),
    "cauchy": (Cauchy(LOC, SCALE), scipy.stats.cauchy(LOC, SCALE)),
    "user's own": (Triangular(LOC), scipy.stats.triang(0.5, LOC - 2, 4)),
    "independent": (Independent(Normal(LOC, SCALE), 1), scipy.stats.norm(LOC, SCALE)),
    "multivariate": (MultivariateNormal(LOC, COVARIANCE), gaussian(COVARIANCE.diag())),
    "low rank": (
        LowRankMultivariateNormal(LOC, FACTOR, SCALE),
        gaussian(COVARIANCE.diag()),
    ),
}
EVERY_BASE = pytest.mark.parametrize(("base", "reference"), BASES.values(), ids=BASES)


@EVERY_BASE
def test_sigmoid_probability_matches_scipy(base, reference):
    actual = ApproximateBernoulli(base, threshold=BETA).prob_open()
    expected = torch.as_tensor(reference.sf(CUT.numpy()))
    torch.testing.assert_close(actual, expected)


@EVERY_BASE
def test_sigmoid_probability_matches_frequencies(base, reference):
    del reference
    gates = ApproximateBernoulli(base, threshold=BETA)
    frequency = (gates.rsample((40_000,)) > 0).double().mean(0)
    torch.testing.assert_close(gates.prob_open(), frequency, atol=0.01, rtol=0)


@pytest.mark.parametrize("name", ["normal", "logistic", "laplace", "gumbel"])
def test_softmax_probability_is_conditional_on_the_others(name):
    base, _ = BASES[name]
    others = base.sample()
    conditional = ApproximateBernoulli(base, "softmax", BETA).prob_open(others)
    for k in range(3):
        sample = others.repeat(40_000, 1)
        sample[:, k] = base.sample((40_000,))[:, k]
        frequency = (sample.softmax(-1)[:, k] > BETA[k]).double().mean()
        torch.testing.assert_close(conditional[k], frequency, atol=0.01, rtol=0)


@pytest.mark.parametrize("name", ["multivariate", "low rank"])
@pytest.mark.parametrize("k", [0, 1, 2])
def test_softmax_probability_uses_the_correlation(name, k):
    base, _ = BASES[name]
    others = torch.tensor([0.5, -0.3, 1.2], dtype=torch.float64)
    rest = [other for other in range(3) if other != k]
    weights = torch.linalg.solve(COVARIANCE[rest][:, rest], COVARIANCE[rest, k])
    mean = LOC[k] + weights @ (others - LOC)[rest]
    variance = COVARIANCE[k, k] - weights @ COVARIANCE[rest, k]
    cut = CUT[k] + others[rest].logsumexp(0)
    expected = scipy.stats.norm.sf(cut, mean, variance.sqrt())
    actual = ApproximateBernoulli(base, "softmax", BETA).prob_open(others)[k]
    assert actual.item() == pytest.approx(expected)


def joint_and_product(u, threshold):
    base = Normal(torch.zeros(3), torch.ones(3))
    is_open = ApproximateBernoulli(base, u, threshold).sample((100_000,)) > 0
    first, second = is_open[:, 0].float(), is_open[:, 1].float()
    return (first * second).mean().item(), (first.mean() * second.mean()).item()


def test_sigmoid_gates_of_independent_samples_are_independent():
    joint, product = joint_and_product("sigmoid", 0.4)
    assert joint == pytest.approx(product, abs=0.005)


def test_softmax_gates_depend_on_one_another():
    joint, product = joint_and_product("softmax", 0.3)
    assert joint < product - 0.05


@pytest.mark.parametrize("u", ["sigmoid", "softmax", torch.special.ndtr], ids=str)
@pytest.mark.parametrize("sharpness", [0.0, 3.0])
def test_samples_lie_in_the_support(u, sharpness):
    gates = ApproximateBernoulli(Normal(LOC, SCALE), u, 0.2, sharpness)
    assert gates.support.check(gates.sample((1000,))).all()
    assert not gates.support.check(torch.tensor([0.0, 1.0, -0.1]))
    assert not gates.support.check(torch.tensor([0.0, 1.0, 2.1]))


def test_samples_carry_gradients_to_the_base():
    loc = LOC.clone().requires_grad_()
    gates = ApproximateBernoulli(Normal(loc, SCALE), threshold=0.05)
    (gates.rsample() * torch.arange(3)).sum().backward()
    assert loc.grad.abs().sum() > 0
    assert not gates.sample().requires_grad


def test_a_base_without_gradients_can_be_sampled():
    gates = ApproximateBernoulli(Poisson(torch.ones(3)), threshold=0.6)
    assert not gates.has_rsample
    assert gates.sample((5,)).shape == (5, 3)


@pytest.mark.parametrize("batch", [(), (4,), (2, 4)])
def test_shapes_and_expansion(batch):
    gates = ApproximateBernoulli(Normal(LOC, SCALE), threshold=BETA).expand(batch)
    assert (gates.batch_shape, gates.event_shape) == (batch, (3,))
    assert gates.rsample((5,)).shape == (5, *batch, 3)
    assert gates.prob_open().shape == (*batch, 3)
    again = gates.expand((6, *batch))
    assert again.sample().shape == (6, *batch, 3)


def test_arguments_are_validated():
    base = Normal(LOC, SCALE)
    with pytest.raises(ValueError, match="threshold"):
        ApproximateBernoulli(base, threshold=1.5, validate_args=True)
    with pytest.raises(ValueError, match="sharpness"):
        ApproximateBernoulli(base, sharpness=-1.0, validate_args=True)
    assert ApproximateBernoulli.arg_constraints["sharpness"] is constraints.nonnegative


@pytest.mark.parametrize(
    "base", [Normal(0.0, 1.0), Independent(Normal(torch.zeros(2, 3), 1), 2)]
)
def test_a_base_needs_one_dimension_of_units(base):
    with pytest.raises(ArgumentError, match="one dimension of units"):
        ApproximateBernoulli(base)


def test_softmax_needs_something_to_condition_on():
    with pytest.raises(ArgumentError, match=r"prob_open\(others="):
        ApproximateBernoulli(Normal(LOC, SCALE), "softmax").prob_open()


def test_no_closed_form_says_how_to_estimate():
    with pytest.raises(NotImplementedError, match=r"callable u.\nEstimate it"):
        ApproximateBernoulli(Normal(LOC, SCALE), torch.sigmoid).prob_open()
    with pytest.raises(NotImplementedError, match=r"cdf of StudentT, which has none"):
        ApproximateBernoulli(StudentT(torch.ones(3))).prob_open()


def test_a_joint_cdf_is_refused():
    class Joint(Triangular):
        def cdf(self, value):
            return super().cdf(value).prod(-1)

    with pytest.raises(ArgumentError, match=r"one number per unit, shape \(3,\)"):
        ApproximateBernoulli(Joint(LOC), threshold=BETA).prob_open()

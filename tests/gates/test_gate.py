import copy
import math
import pickle
from functools import partial

import pytest
import torch
from hypothesis import given, strategies as st
from scipy.special import expit, logit, logsumexp
from scipy.stats import norm
from torch.distributions import Gumbel, Normal

from diffprune.gates import Gate, g

U = ["sigmoid", "softmax", torch.special.ndtr]
EVERY_U = pytest.mark.parametrize("u", U, ids=["sigmoid", "softmax", "callable"])
BUILT_IN = pytest.mark.parametrize("u", ["sigmoid", "softmax"])
MIXED = (-6.0, 0.3, -5.0, 0.1, 0.2, -7.0, 0.0)
logits = st.lists(st.floats(-20, 20), min_size=2, max_size=12)


def gate_at(entries, *, dtype=torch.float64, **options):
    """A gate with given logits, and the threshold of a freshly initialised one."""
    gate = Gate(len(entries), **options).to(dtype)
    with torch.no_grad():
        gate.logits.copy_(torch.tensor(entries))
    return gate


def start_like_(gate, other):
    """Give a gate the start of another one: threshold and origin."""
    gate.threshold.copy_(other.threshold)
    gate.origin = other.origin.clone()


def pickled(gate):
    return pickle.loads(pickle.dumps(gate))  # noqa: S301 - our own bytes


class TestConstruction:
    @EVERY_U
    @pytest.mark.parametrize("size", [2, 10, 1000])
    def test_training_starts_from_the_whole_model(self, u, size):
        gate = Gate(size, u=u)
        assert gate.is_open().all()
        torch.testing.assert_close(gate.values().mean().item(), 1.0)

    def test_the_threshold_follows_the_papers_rule(self):
        gate = Gate(50, beta_margin=0.9)
        torch.testing.assert_close(gate.threshold, 0.9 * gate.logits.sigmoid().min())

    def test_logits_start_from_a_truncated_normal(self):
        start = Gate(20_000, init_std=0.5).logits.detach()
        assert start.abs().max() <= 1.0
        assert start.std().item() == pytest.approx(0.88 * 0.5, rel=0.02)
        assert start.mean().item() == pytest.approx(0.0, abs=0.02)

    def test_everything_needed_later_is_in_the_state(self):
        names = {"logits", "raw_sharpness", "threshold", "background"}
        assert set(Gate(3, start="paper").state_dict()) == names
        names |= {"origin", "origin_background"}
        assert set(Gate(3).state_dict()) == names
        noisy = Gate(3, dropout=0.1, index=torch.tensor([0, 1, 2, 2]))
        assert set(noisy.state_dict()) == names | {"log_noise_var", "index"}

    @pytest.mark.parametrize("learned", [True, False])
    def test_sharpness_and_dropout_are_learned_or_fixed(self, learned):
        gate = Gate(3, dropout=0.1, learn_dropout=learned, learn_sharpness=learned)
        extra = {"raw_sharpness", "log_noise_var"} if learned else set()
        assert {name for name, _ in gate.named_parameters()} == {"logits"} | extra

    def test_its_name_says_what_it_is(self):
        assert repr(Gate(3)) == "Gate(3, u='sigmoid', dim=1, min_open=2)"


class TestValues:
    @EVERY_U
    @given(entries=logits, min_open=st.integers(0, 3))
    def test_closed_is_zero_is_improbable(self, u, entries, min_open):
        gate = gate_at(entries, u=u, min_open=min_open)
        assert torch.equal(gate.values() != 0, gate.is_open())
        # At the threshold itself, rounding may tell one from the other.
        clear = (gate.prob_open() - 0.5).abs() > 1e-9
        assert torch.equal((gate.prob_open() > 0.5)[clear], gate.is_open()[clear])

    @EVERY_U
    @given(entries=logits)
    def test_open_units_average_to_one(self, u, entries):
        gate = gate_at(entries, u=u)
        assert gate.values()[gate.is_open()].mean().item() == pytest.approx(1.0)

    @BUILT_IN
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
    def test_extreme_logits_stay_finite(self, u, dtype):
        gate = gate_at([1e4, -1e4, 0.0, 3.0, 1e4], u=u, dtype=dtype)
        (gate.values().square().sum() + gate.prob_open().sum()).backward()
        for x in (gate.values(), gate.prob_open(), gate.logits.grad):
            assert x.isfinite().all()
            assert x.dtype == dtype

    @BUILT_IN
    @pytest.mark.parametrize("size", [2, 1000, 100_000])
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
    def test_a_change_of_dtype_closes_nothing(self, u, size, dtype):
        assert Gate(size, u=u).to(dtype).is_open().all()

    def test_zeta_can_leave_its_bound_and_never_crosses_it(self):
        gate = Gate(5)
        optimizer = torch.optim.Adam([gate.raw_sharpness], lr=0.05)
        for direction in [-1, 1] * 2:
            for _ in range(40):
                optimizer.zero_grad()
                (direction * gate.sharpness).backward()
                optimizer.step()
                assert gate.sharpness >= 0
            assert gate.sharpness > 1 if direction == -1 else gate.sharpness < 1.0

    def test_an_infinite_zeta_is_binary(self):
        gate = gate_at(MIXED, sharpness=torch.inf, learn_sharpness=False)
        assert torch.equal(gate.values(), gate.is_open().double())


class TestFloor:
    @EVERY_U
    def test_the_largest_units_never_close(self, u):
        gate = gate_at([-8.0, -7.5, -9.0, -7.5, -7.5], u=u, min_open=2)
        gate.threshold.fill_(0.9)
        assert gate.is_open().tolist() == [False, True, False, True, False]
        assert gate.at_floor()

    @EVERY_U
    def test_the_penalty_leaves_held_units_alone(self, u):
        gate = gate_at([-1.0, -0.7, -0.8, -1.2], u=u, min_open=2)
        gate.threshold.fill_(0.6)
        probability = gate.prob_open()
        assert probability[[1, 2]].tolist() == [1.0, 1.0]
        (gradient,) = torch.autograd.grad(probability[[1, 2]].sum(), gate.logits)
        assert not gradient.any()

    def test_the_floor_binds_as_soon_as_only_held_units_are_open(self):
        gate = gate_at([1.0, 2.0, -9.0], min_open=2)
        assert gate.at_floor()
        assert gate.prob_open()[:2].tolist() == [1.0, 1.0]

    def test_above_the_floor_the_penalty_pushes_on_all(self):
        gate = Gate(5, min_open=2)
        gate.prob_open().sum().backward()
        assert not gate.at_floor()
        assert (gate.logits.grad > 0).all()

    @pytest.mark.parametrize("size", [1, 2])
    def test_a_gate_no_larger_than_its_floor_is_always_open(self, size):
        gate = gate_at([-1e4] * size, min_open=2)
        assert gate.is_open().all()
        assert gate.prob_open().tolist() == [1.0] * size
        assert gate.at_floor()

    def test_without_a_floor_all_can_close(self):
        gate = gate_at([-9.0, -8.0], min_open=0)
        gate.values().sum().backward()
        assert gate.values().tolist() == [0.0, 0.0]
        assert gate.logits.grad.tolist() == [0.0, 0.0]
        assert gate.at_floor()


class TestProbability:
    @pytest.mark.parametrize("sigma", [0.3, 1.0, 2.0])
    def test_sigmoid_matches_scipy(self, sigma):
        gate = gate_at(MIXED, sigma=sigma)
        cut = logit(gate.threshold.numpy())
        expected = torch.as_tensor(norm.sf(cut, gate.logits.detach().numpy(), sigma))
        torch.testing.assert_close(gate.prob_open().detach(), expected)

    @pytest.mark.parametrize("sigma", [0.3, 1.0, 2.0])
    def test_softmax_matches_scipy(self, sigma):
        gate = gate_at(MIXED, u="softmax", sigma=sigma)
        others = [logsumexp([*MIXED[:k], *MIXED[k + 1 :]]) for k in range(7)]
        cut = logit(gate.threshold.numpy()) + others
        expected = torch.as_tensor(norm.sf(cut, MIXED, sigma))
        torch.testing.assert_close(gate.prob_open().detach(), expected)

    @BUILT_IN
    def test_a_normal_base_is_the_default_probability(self, u):
        gate = gate_at(MIXED, u=u, sigma=1.7)
        stochastic = copy.deepcopy(gate)
        stochastic.base = partial(Normal, scale=1.7)
        torch.testing.assert_close(stochastic.prob_open(), gate.prob_open())

    def test_a_base_brings_its_own_probability(self):
        gate = gate_at(MIXED, base=partial(Gumbel, scale=0.5), min_open=0)
        frequency = (
            torch.stack([gate.values() > 0 for _ in range(4000)]).double().mean(0)
        )
        torch.testing.assert_close(
            gate.prob_open().detach(), frequency, atol=0.03, rtol=0
        )


class TestStart:
    @EVERY_U
    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("size", [2, 7, 300, 70_000])
    def test_every_value_is_one(self, u, dtype, size):
        gate = Gate(size, u=u, init_std=0.5).to(dtype)
        error = (gate.values() - 1).abs().max().item()
        assert error <= (0 if u == "sigmoid" else torch.finfo(dtype).eps)
        assert gate.logits.std() > 0
        assert gate.is_open().all()

    @EVERY_U
    def test_the_papers_start_deviates_as_the_logits_do(self, u):
        gate = Gate(7, u=u, start="paper").double()
        from_paper = g(gate.logits, u, gate.threshold, 0.0)
        torch.testing.assert_close(gate.values(), from_paper)
        assert (gate.values() - 1).abs().max() > 1e-4

    @EVERY_U
    @pytest.mark.parametrize("size", [5, 70_000])
    def test_the_first_gradient_is_that_of_finite_differences(self, u, size):
        gate = Gate(size, u=u).double()
        weights = torch.linspace(-1, 2, size, dtype=torch.float64)

        def loss(unit, step):
            moved = copy.deepcopy(gate)
            moved.logits.data[unit] += step
            return (moved.values().square() * weights).sum()

        (gate.values().square() * weights).sum().backward()
        for unit in (0, 1, size - 1):
            slope = (loss(unit, 1e-4) - loss(unit, -1e-4)) / 2e-4
            found = gate.logits.grad[unit]
            torch.testing.assert_close(found, slope.detach(), rtol=1e-4, atol=1e-7)
        assert gate.logits.grad.count_nonzero() >= size - 1

    def test_it_moves_as_the_papers_does(self):
        ours, papers = Gate(6, init_std=0.05).double(), Gate(6, start="paper").double()
        papers.logits.data.copy_(ours.logits)
        weights = torch.linspace(-1, 2, 6).double()
        for gate in (ours, papers):
            (gate.values() * weights).sum().backward()
        torch.testing.assert_close(
            ours.logits.grad, papers.logits.grad, rtol=0.01, atol=0
        )

    @BUILT_IN
    @given(entries=logits)
    def test_open_values_are_positive_and_of_mean_one(self, u, entries):
        gate = gate_at(entries, u=u, init_std=2.0)
        values = gate.values()
        assert (values[gate.is_open()] > 0).all()
        assert values[gate.is_open()].mean().item() == pytest.approx(1)

    def test_sharpness_is_learned_once_values_have_moved(self):
        gate = Gate(4)
        gate.values().square().sum().backward()
        assert gate.raw_sharpness.grad == 0
        gate.logits.data += torch.tensor([0.0, 1.0, 2.0, 3.0])
        gate.values().square().sum().backward()
        assert gate.raw_sharpness.grad != 0

    def test_no_parameter_is_a_scalar(self):
        gate = Gate(3, dropout=0.1)
        assert all(parameter.ndim == 1 for parameter in gate.parameters())


class TestNoise:
    @pytest.mark.parametrize("rate", [0.15, 0.5])
    def test_dropout_is_the_papers_gaussian(self, rate):
        gate = gate_at([2.0] * 50_000, dropout=rate)
        noise = gate.sample().detach() / 2.0
        assert noise.mean().item() == pytest.approx(1.0, abs=0.02)
        assert noise.std().item() == pytest.approx(
            math.sqrt(rate / (1 - rate)), rel=0.02
        )
        assert expit(gate.log_noise_var.item()) == pytest.approx(rate)

    def test_the_rate_is_learned_through_the_noise(self):
        gate = Gate(9, dropout=0.3)
        (gate.values() * torch.arange(9)).sum().backward()
        assert gate.log_noise_var.grad.abs() > 0

    @pytest.mark.parametrize(
        "noise", [{"dropout": 0.5}, {"base": partial(Normal, scale=1.0)}]
    )
    def test_noise_is_for_training_only(self, noise):
        gate = gate_at(MIXED, **noise)
        assert not torch.equal(gate.values(), gate.values())
        quiet = gate_at(MIXED)
        start_like_(quiet, gate)
        assert torch.equal(gate.eval().values(), quiet.values())

    @BUILT_IN
    def test_a_gate_without_noise_is_deterministic(self, u):
        gate = gate_at(MIXED, u=u)
        assert torch.equal(gate.train().values(), gate.eval().values())


class TestRemoval:
    @EVERY_U
    def test_survivors_do_not_notice_and_removal_composes(self, u):
        gate, at_once = gate_at(MIXED, u=u), gate_at(MIXED, u=u)
        start_like_(at_once, gate)
        values, probability = gate.values(), gate.prob_open()
        first = torch.tensor([False, True, True, True, True, False, True])
        gate.keep_(first)
        torch.testing.assert_close(gate.values(), values[first])
        gate.keep_(gate.is_open())
        is_open = values != 0
        torch.testing.assert_close(gate.values(), values[is_open])
        torch.testing.assert_close(gate.prob_open(), probability[is_open])
        at_once.keep_(is_open)
        torch.testing.assert_close(at_once.state_dict(), gate.state_dict())

    @BUILT_IN
    def test_training_goes_on_as_if_nothing_had_happened(self, u):
        whole, small = gate_at(MIXED, u=u), gate_at(MIXED, u=u)
        start_like_(small, whole)
        is_open = whole.is_open()
        small.keep_(is_open)
        target = torch.linspace(0.5, 1.5, 7, dtype=torch.float64)
        (whole.values() * target).sum().backward()
        (small.values() * target[is_open]).sum().backward()
        torch.testing.assert_close(small.logits.grad, whole.logits.grad[is_open])

    def test_a_closed_sigmoid_unit_never_reopens(self):
        gate = gate_at(MIXED)
        closed = ~gate.is_open()
        optimizer = torch.optim.SGD(gate.parameters(), lr=0.5, momentum=0.9)
        for _ in range(20):
            optimizer.zero_grad()
            loss = (gate.values() - 5).square().sum() + gate.prob_open().sum()
            loss.backward()
            optimizer.step()
        assert not gate.is_open()[closed].any()

    def test_an_old_loss_can_still_be_differentiated(self):
        gate = gate_at(MIXED)
        old = gate.values().sum()
        gate.keep_(gate.is_open())
        (old + gate.values().sum()).backward()
        assert gate.logits.grad.shape == (4,)

    def test_what_is_frozen_or_per_unit_stays_so(self):
        gate = gate_at(MIXED)
        gate.logits.requires_grad_(requires_grad=False)
        gate.threshold = torch.linspace(0.1, 0.3, 7).double()
        values, mask = gate.values(), gate.is_open()
        gate.keep_(mask)
        assert not gate.logits.requires_grad
        torch.testing.assert_close(gate.values(), values[mask])

    @BUILT_IN
    def test_a_last_survivor_is_fine(self, u):
        gate = gate_at(MIXED, u=u, min_open=0)
        gate.keep_(torch.arange(7) == 1)
        gate.prob_open().sum().backward()
        assert gate.values().tolist() == [1.0]
        assert gate.logits.grad.isfinite().all()


class TestGroups:
    def test_an_index_repeats_units_over_elements(self):
        gate = gate_at(
            [0.3, -9.0, 0.1], index=torch.tensor([2, 0, 0, 1, 1]), min_open=1
        )
        expected = gate.values()[[2, 0, 0, 1, 1]].expand(4, 5)
        assert torch.equal(gate(torch.ones(4, 5).double()), expected)

    @pytest.mark.parametrize("dim", [0, 1, -3])
    def test_an_index_may_cover_several_dimensions(self, dim):
        index = torch.arange(12).view(3, 2, 2) // 4
        shape = (3, 2, 2) if dim == 0 else (5, 3, 2, 2)
        gate = Gate(3, index=index, dim=dim)
        assert torch.equal(gate(torch.ones(shape)), gate.values()[index].expand(shape))

    def test_elements_go_with_their_unit(self):
        gate = Gate(3, index=torch.tensor([2, 0, 0, 1, 2]))
        gate.keep_(torch.tensor([True, False, True]))
        assert gate.index.tolist() == [1, 0, 0, 1]


class TestModule:
    @pytest.mark.parametrize(
        ("dim", "shape"), [(1, (2, 7, 3)), (-1, (2, 7)), (0, (7, 2))]
    )
    def test_it_multiplies_along_its_dimension(self, dim, shape):
        gate, x = gate_at(MIXED, dim=dim), torch.randn(shape).double()
        expected = (x.movedim(dim, -1) * gate.values()).movedim(-1, dim)
        torch.testing.assert_close(gate(x), expected)

    @BUILT_IN
    @pytest.mark.parametrize("again", [copy.deepcopy, pickled])
    def test_copies_are_equal_and_separate(self, u, again):
        gate = gate_at(MIXED, u=u, base=partial(Normal, scale=1.0))
        copied = again(gate)
        assert torch.equal(copied.eval().values(), gate.eval().values())
        assert copied.logits is not gate.logits

    @EVERY_U
    @pytest.mark.parametrize("shrunk", [False, True])
    def test_state_round_trip(self, u, shrunk):
        index = torch.tensor([0, 1, 2, 3, 4, 5, 6, 6])
        gate = gate_at(MIXED, u=u, index=index)
        if shrunk:
            gate.keep_(gate.is_open())
        fresh = Gate(7, u=u, index=index).double()
        fresh.load_state_dict(gate.state_dict())
        assert torch.equal(fresh.values(), gate.values())
        assert torch.equal(fresh.index, gate.index)

    def test_a_larger_state_is_refused(self):
        with pytest.raises(RuntimeError, match="size mismatch for logits"):
            Gate(3).load_state_dict(Gate(4).state_dict())

    def test_a_state_without_a_threshold_is_refused(self):
        state = Gate(3).state_dict()
        del state["threshold"]
        with pytest.raises(RuntimeError, match=r"Missing key.*threshold"):
            Gate(3).load_state_dict(state)

    def test_a_state_without_gates_leaves_them_as_they_are(self):
        gate = Gate(3)
        threshold = gate.threshold.clone()
        gate.load_state_dict({}, strict=False)
        assert torch.equal(gate.threshold, threshold)

    @BUILT_IN
    def test_autocast_keeps_the_dtype_of_activations(self, u):
        gate, x = Gate(7, u=u), torch.randn(2, 7)
        with torch.autocast("cpu", torch.bfloat16):
            assert gate(x.bfloat16()).dtype == torch.bfloat16
            torch.testing.assert_close(gate(x), x * gate.values())

    @BUILT_IN
    def test_it_compiles_without_a_break(self, u):
        gate, x = Gate(7, u=u, dropout=0.1).eval(), torch.randn(2, 7)
        compiled = torch.compile(gate, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(x), gate(x))

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
    @BUILT_IN
    def test_the_default_compiler_agrees_on_values_and_gradients(self, u):
        gate, x = Gate(7, u=u), torch.randn(2, 7)
        compiled = torch.compile(gate)
        eager = torch.autograd.grad(gate(x).square().sum(), gate.logits)
        actual = torch.autograd.grad(compiled(x).square().sum(), gate.logits)
        torch.testing.assert_close(actual, eager)

    @BUILT_IN
    @pytest.mark.parametrize("size", [7, 20_000])
    def test_an_ensemble_is_mapped_at_once(self, u, size):
        gates, x = [Gate(size, u=u) for _ in range(3)], torch.randn(2, size)
        parameters, buffers = torch.func.stack_module_state(gates)

        def call(parameters, buffers):
            return torch.func.functional_call(gates[0], (parameters, buffers), (x,))

        together = torch.func.vmap(call)(parameters, buffers)
        torch.testing.assert_close(together, torch.stack([gate(x) for gate in gates]))

    @BUILT_IN
    def test_a_million_units(self, u):
        gate = Gate(1_000_000, u=u)
        (gate.values().square().mean() + gate.prob_open().mean()).backward()
        assert gate.is_open().all()
        assert gate.values().mean().item() == pytest.approx(1.0, abs=1e-4)
        assert gate.logits.grad.isfinite().all()

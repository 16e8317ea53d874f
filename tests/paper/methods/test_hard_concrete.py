"""Hard concrete gates against their closed forms and draws."""

import math

import pytest
import torch

from paper.methods.hard_concrete import HardConcrete, prob_open


def test_constants_of_the_literature():
    at = torch.tensor([0.0, -2.0, 2.197, math.log(0.01), math.log(100)])
    expected = [0.8318, 0.4010, 0.9780, 0.0471, 0.9980]
    assert prob_open(at).tolist() == pytest.approx(expected, abs=1e-4)
    gate = HardConcrete(5).eval()
    gate.log_alpha.data = at
    in_use = [0.5, 0.0430, 0.9800, 0.0, 1.0]
    assert gate.values().tolist() == pytest.approx(in_use, abs=1e-4)
    assert gate.is_open().tolist() == [True, True, True, False, True]


def test_draws_are_open_as_often_as_the_penalty_says():
    torch.manual_seed(0)
    gate = HardConcrete(200_000)
    gate.log_alpha.data.fill_(-1.0)
    share = (gate.values() > 0).float().mean()
    assert float(share) == pytest.approx(gate.penalty().item() / gate.size, abs=0.004)
    assert float(gate.reopening()[0]) == pytest.approx(float(share), abs=0.004)


def test_the_penalty_has_the_right_gradient():
    gate = HardConcrete(4).double()

    def penalty(log_alpha):
        return torch.func.functional_call(gate, {"log_alpha": log_alpha}, (ones,)).sum()

    ones = torch.ones(1, 4).double()
    gate.eval()
    at = torch.tensor([-1.0, 0.0, 1.0, 2.0]).double().requires_grad_()
    assert torch.autograd.gradcheck(penalty, at)
    assert torch.autograd.gradcheck(lambda a: prob_open(a).sum(), at)


def test_logits_beyond_the_bounds_can_return():
    gate = HardConcrete(2)
    gate.log_alpha.data = torch.tensor([-9.0, 9.0])
    assert gate.margin().abs().max() < 7.1
    gate.penalty().backward()
    assert (gate.log_alpha.grad > 0).all()


@pytest.mark.parametrize(("dropout", "start"), [(0.5, 0.0), (0.1, 2.1972)])
def test_gates_start_at_their_rate(dropout, start):
    torch.manual_seed(0)
    logits = HardConcrete(10_000, dropout=dropout).log_alpha
    assert logits.mean().item() == pytest.approx(start, abs=1e-3)
    assert logits.std().item() == pytest.approx(0.01, rel=0.05)


def test_a_logit_beyond_the_bounds_is_drawn_as_at_the_bound():
    gate = HardConcrete(2)
    gate.log_alpha.data = torch.tensor([-9.0, 9.0])
    assert gate.reopening().tolist() == pytest.approx([0.0471, 0.9980], abs=1e-4)
    assert gate.penalty().item() == pytest.approx(1.0451, abs=1e-3)

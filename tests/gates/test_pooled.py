import pytest
import torch

from diffprune import Gate
from diffprune.gates.pooled import PooledGates, can_be_pooled

STRENGTHS = [1.0, 2.0, 3.0, 0.5]


@pytest.fixture(params=[torch.float64, torch.float32, torch.bfloat16])
def gates(request):
    """Gates with closed units; the third is held open by its floor."""
    made = [Gate(5), Gate(7, sharpness=0.3), Gate(3), Gate(40, sharpness=1.0)]
    with torch.no_grad():
        made[0].logits[:2] = -4
        made[2].logits.copy_(torch.tensor([-3.0, -2.0, -5.0]))
        made[3].logits[::3] = -2
    return [gate.to(request.param) for gate in made]


def bank(gates):
    return PooledGates({str(number): gate for number, gate in enumerate(gates)})


def pooled_values(gates):
    return list(bank(gates).values().values())


def pooled_penalty(gates, strengths):
    named = {str(number): strength for number, strength in enumerate(strengths)}
    return bank(gates).penalty(named)


def gradients(gates, loss):
    for gate in gates:
        gate.zero_grad()
    loss.backward()
    return [p.grad for gate in gates for p in gate.parameters() if p.grad is not None]


def tolerance(gates):
    return {"rtol": 20 * torch.finfo(gates[0].logits.dtype).eps, "atol": 1e-6}


def test_values_are_those_of_each_gate(gates):
    for pooled, gate in zip(pooled_values(gates), gates, strict=True):
        torch.testing.assert_close(pooled, gate.values(), **tolerance(gates))
        assert torch.equal(pooled != 0, gate.is_open())


def test_gradients_of_values_are_those_of_each_gate(gates):
    weights = [torch.randn(gate.size, dtype=gate.logits.dtype) for gate in gates]
    pooled = sum(
        (v * w).sum() for v, w in zip(pooled_values(gates), weights, strict=True)
    )
    alone = sum((g.values() * w).sum() for g, w in zip(gates, weights, strict=True))
    pairs = zip(gradients(gates, pooled), gradients(gates, alone), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, **tolerance(gates))


def test_penalty_is_the_sum_over_the_gates(gates):
    pooled = pooled_penalty(gates, STRENGTHS)
    alone = sum(
        s * gate.prob_open().double().sum()
        for gate, s in zip(gates, STRENGTHS, strict=True)
    )
    torch.testing.assert_close(pooled.double(), alone, rtol=2e-2, atol=0)


def test_gradient_of_the_penalty_is_that_of_each_gate(gates):
    alone = sum(s * g.prob_open().sum() for g, s in zip(gates, STRENGTHS, strict=True))
    pairs = zip(
        gradients(gates, pooled_penalty(gates, STRENGTHS)),
        gradients(gates, alone),
        strict=True,
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other, **tolerance(gates))


def test_the_penalty_leaves_units_at_the_floor_alone():
    gate = Gate(3)
    with torch.no_grad():
        gate.logits.copy_(torch.tensor([-3.0, -2.0, -5.0]))
    pooled_penalty([gate], [1.0]).backward()
    assert torch.equal(gate.logits.grad != 0, torch.tensor([False, False, True]))


def test_gradients_match_finite_differences():
    gates = [Gate(4).double(), Gate(3, sharpness=0.2).double()]

    def loss(first, second):
        gates[0].logits.data, gates[1].logits.data = first.detach(), second.detach()
        return torch.cat(pooled_values(gates)).square().sum()

    first, second = (gate.logits.detach().clone() for gate in gates)
    loss(first, second).backward()
    step = 1e-6
    for number, gate in enumerate(gates):
        for unit in range(gate.size):
            logits = [first.clone(), second.clone()]
            logits[number][unit] += step
            up = loss(*logits)
            logits[number][unit] -= 2 * step
            slope = (up - loss(*logits)) / (2 * step)
            torch.testing.assert_close(
                gate.logits.grad[unit], slope.detach(), rtol=1e-5, atol=1e-8
            )


def test_gates_that_compete_are_not_pooled():
    assert not can_be_pooled(Gate(3, u="softmax"))
    assert can_be_pooled(Gate(3))


def test_noise_is_drawn_as_by_the_gates_alone():
    gates = [Gate(5, dropout=0.3).double(), Gate(4, dropout=0.5, min_open=4).double()]
    torch.manual_seed(3)
    alone = [gate.values() for gate in gates]
    expected = gradients(gates, sum(values.square().sum() for values in alone))
    torch.manual_seed(3)
    pooled = pooled_values(gates)
    for one, other in zip(pooled, alone, strict=True):
        torch.testing.assert_close(one, other)
    found = gradients(gates, sum(values.square().sum() for values in pooled))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_gates_of_all_kinds_are_evaluated_together():
    mixed = {"plain": Gate(3), "competing": Gate(4, u="softmax")}
    found = PooledGates(mixed).values()
    for name, gate in mixed.items():
        torch.testing.assert_close(found[name], gate.values())
    both = PooledGates(mixed).penalty({"plain": 1.0, "competing": 2.0})
    alone = mixed["plain"].prob_open().sum() + 2 * mixed["competing"].prob_open().sum()
    torch.testing.assert_close(both, alone)


def cut(gate):
    gate.keep_(torch.tensor([True, False, True, True, False]))


def load(gate):
    gate.load_state_dict(Gate(5, beta_margin=0.5).state_dict())


def reset(gate):
    gate.threshold.fill_(0.4)


@pytest.mark.parametrize(
    "change", [cut, load, reset, Gate.double, Gate.bfloat16], ids=lambda f: f.__name__
)
def test_pooled_gates_notice_that_their_gates_have_changed(change):
    gates = {"one": Gate(5), "other": Gate(7)}
    kept = PooledGates(gates)
    before = kept.values(), kept.penalty({"one": 1.0, "other": 1.0})
    del before
    for gate in (
        gates.values() if change in {Gate.double, Gate.bfloat16} else [gates["one"]]
    ):
        change(gate)
    fresh = PooledGates(gates)
    for name, values in kept.values().items():
        assert torch.equal(values, fresh.values()[name])
    strengths = {"one": 2.0, "other": 1.0}
    assert torch.equal(kept.penalty(strengths), fresh.penalty(strengths))


def test_noise_does_not_enter_the_penalty():
    gates = [Gate(5, dropout=0.3), Gate(7, u="softmax", dropout=0.3)]
    alone = sum(s * g.prob_open().sum() for g, s in zip(gates, [1, 2], strict=True))
    torch.testing.assert_close(pooled_penalty(gates, [1.0, 2.0]), alone)


def test_no_strength_is_no_penalty_and_no_work():
    gates = [Gate(5), Gate(7, u="softmax")]
    penalty = pooled_penalty(gates, [0.0, 0.0])
    penalty.backward()
    assert penalty == 0
    assert all(gate.logits.grad is None for gate in gates)
    only = pooled_penalty(gates, [0.0, 2.0])
    torch.testing.assert_close(only, 2 * gates[1].prob_open().sum())

import pytest
import torch

from diffprune import Gate
from diffprune._budget.gate_control import hold_open_, let_close_, set_open_

GATES = {
    "sigmoid": {},
    "softmax": {"u": "softmax"},
    "noise": {"dropout": 0.3},
    "wide": {"sigma": 3.0},
}


@pytest.fixture(params=GATES)
def gate(request):
    return Gate(7, **GATES[request.param]).eval()


def test_held_units_stay_open_at_the_same_values(gate):
    before = gate.values()
    hold_open_(gate)
    torch.testing.assert_close(gate.values(), before)
    gate.logits.data[:4] -= 9.0
    assert gate.is_open().all()
    assert torch.equal(gate.prob_open(), torch.ones(7))


def test_held_units_are_not_pushed(gate):
    hold_open_(gate)
    gate.prob_open().sum().backward()
    assert torch.equal(gate.logits.grad, torch.zeros(7))


def test_let_go_all_are_open_and_the_weakest_hardly(gate):
    hold_open_(gate)
    gate.logits.data[3] -= 2.0
    let_close_(gate)
    assert gate.is_open().all()
    assert gate.margin().argmin() == 3
    assert gate.margin()[3] < 0.03


@pytest.mark.parametrize("kept", [[0, 1, 2], [4, 6], range(7)])
def test_units_are_set_by_hand(gate, kept):
    gate.logits.data[4] -= 5.0
    units = torch.zeros(7, dtype=torch.bool)
    units[list(kept)] = True
    set_open_(gate, units)
    assert torch.equal(gate.is_open(), units)
    assert torch.equal(gate.values() != 0, units)


def test_what_is_right_already_is_not_touched():
    gate = Gate(5)
    before = gate.logits.clone()
    set_open_(gate, torch.tensor([True, True, False, True, True]))
    assert torch.equal(gate.logits != before, torch.arange(5) == 2)

import pytest
import torch
from torch import nn

from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.gates import BaseGate, Gate, gate_weight
from diffprune.gates.penalty import expected_l0, named_gates, parameter_groups


@pytest.fixture
def model():
    return nn.Sequential(
        nn.Linear(4, 3), Gate(3), nn.Linear(3, 5), Gate(5, u="softmax")
    )


@pytest.mark.parametrize("strength", [{"1": 0.5, "3": 2.0}, (0.5, 2.0), [0.5, 2.0]])
def test_each_partition_has_its_own_strength(model, strength):
    expected = 0.5 * model[1].prob_open().sum() + 2 * model[3].prob_open().sum()
    torch.testing.assert_close(expected_l0(model, strength), expected)


def test_one_strength_serves_all(model):
    expected = 0.1 * (model[1].prob_open().sum() + model[3].prob_open().sum())
    torch.testing.assert_close(expected_l0(model, 0.1), expected)


def test_the_penalty_closes_sigmoid_units(model):
    expected_l0(model, 1.0).backward()
    assert (model[1].logits.grad > 0).all()


def test_a_gate_used_twice_counts_once():
    gate = Gate(3)
    once, twice = nn.Sequential(gate), nn.Sequential(gate, nn.ReLU(), gate)
    assert expected_l0(once, 1.0) == expected_l0(twice, 1.0)


def test_a_single_gate_is_a_model_too():
    assert expected_l0(Gate(3), 1.0) > 1.5


@pytest.mark.parametrize(
    ("strength", "message"),
    [
        ({"1": 1.0, "3": 1.0, "conv": 1.0}, r"no gate is called 'conv'; .* '1', '3'"),
        ({"1": 1.0}, r"no strength for '3'.\n.*0.0 leaves it alone"),
    ],
)
def test_names_must_match_the_gates(model, strength, message):
    with pytest.raises(UnknownNameError, match=message):
        expected_l0(model, strength)


def test_the_number_of_strengths_must_match(model):
    with pytest.raises(ArgumentError, match="got 3 strengths for 2 gates: 1, 3"):
        expected_l0(model, [1.0, 2.0, 3.0])


def test_a_model_without_gates_is_an_error():
    with pytest.raises(ArgumentError, match="no gates"):
        expected_l0(nn.Linear(2, 2), 1.0)


def test_every_trained_parameter_is_in_exactly_one_group(model):
    model[0].bias.requires_grad_(requires_grad=False)
    groups = parameter_groups(model, weight_decay=0.1)
    listed = [p for group in groups for p in group["params"]]
    assert len(listed) == len(set(listed))
    assert set(listed) == {p for p in model.parameters() if p.requires_grad}


def test_gates_are_never_decayed_but_gated_weights_are():
    layer = nn.Linear(4, 3)
    gate = gate_weight(layer)
    others, gates = parameter_groups(layer, weight_decay=0.1)
    assert set(gates["params"]) == set(gate.parameters())
    assert gates["weight_decay"] == 0
    assert others["weight_decay"] == 0.1
    assert len(others["params"]) == 2


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        ({}, (0.001, 0.001)),
        ({"lr": 0.2}, (0.2, 0.2)),
        ({"gate_lr": 0.3}, (0.001, 0.3)),
        ({"lr": 0.2, "gate_lr": 0.3}, (0.2, 0.3)),
    ],
)
def test_learning_rates(model, rates, expected):
    optimizer = torch.optim.Adam(parameter_groups(model, **rates))
    assert tuple(group["lr"] for group in optimizer.param_groups) == expected


def test_named_gates_are_found_at_any_depth(model):
    assert list(named_gates(nn.ModuleDict({"body": model}))) == ["body.1", "body.3"]


def test_the_kernel_of_the_optimizer_is_the_users_choice():
    assert all("fused" not in g for g in parameter_groups(nn.Sequential(Gate(3))))


def test_the_optimizers_own_weight_decay_stays_unless_another_is_given():
    model = nn.Sequential(nn.Linear(4, 3), Gate(3))
    weights, gates = torch.optim.AdamW(
        parameter_groups(model), weight_decay=0.3
    ).param_groups
    assert (weights["weight_decay"], gates["weight_decay"]) == (0.3, 0.0)


def test_a_gate_that_a_gate_is_made_of_is_no_gate_of_the_model():
    class Doubled(BaseGate):
        def __init__(self, size):
            super().__init__()
            self.own = Gate(size)

        size = property(lambda self: self.own.size)

        def values(self):
            return 2 * self.own.values()

        def margin(self):
            return self.own.margin()

        def penalty(self):
            return self.own.penalty()

    model = nn.Sequential(nn.Linear(3, 4), Doubled(4), Gate(4))
    assert list(named_gates(model)) == ["1", "2"]
    assert list(named_gates(model, Gate)) == ["2"]

import pytest
import torch
from torch import nn

from diffprune import find_groups
from diffprune._graph.infer import functional_op

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("overload", "packet"),
    [
        (aten.add_.Tensor, aten.add),
        (aten.relu.default, aten.relu),
        (aten.__and__.Tensor, aten.__and__),
    ],
)
def test_an_op_in_place_is_the_op(overload, packet):
    assert functional_op(overload) is packet


def test_an_op_without_a_rule_freezes_and_is_reported(between, reason):
    text = reason(between(lambda m, h: m.last(torch.fft.rfft(h).abs()), read=5))
    assert "no rule says how this form of op maps channels: `aten.fft_rfft`" in text
    assert "Teach it with `rules={torch.ops.aten.fft_rfft: rule}`" in text


def test_a_rule_that_fails_is_no_rule(between, reason):
    def rule(*_):
        raise ValueError

    model = between(lambda m, h: m.last(h.relu()))
    assert "no rule says" in reason(model, rules={aten.relu: rule})


def test_users_teach_rules_by_op_or_overload(between, sizes):
    def keep(call, x, *_):
        del call
        return x.axes

    model = between(lambda m, h: m.last(h.renorm(2, 0, 5.0)))
    assert sizes(model) == {}
    assert sizes(model, rules={aten.renorm: keep}) == {"first": 8}
    assert sizes(model, rules={aten.renorm.default: keep}) == {"first": 8}


def test_code_under_no_grad_is_followed(between, sizes):
    def body(module, h):
        with torch.no_grad():
            scaled = h * 2
        return module.last(scaled)

    assert sizes(between(body)) == {"first": 8}


def test_tied_tensors_are_one_value():
    model = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 5), nn.Linear(5, 5))
    model[2].weight = model[1].weight
    groups = find_groups(model, torch.rand(2, 3))
    tensors = groups.solution.tensors
    assert tensors["1.weight"] is tensors["2.weight"]
    assert groups.parameters() == sum(p.numel() for p in model.parameters())

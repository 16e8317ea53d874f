import pytest
import torch
from torch import nn

from diffprune import find_groups
from diffprune._graph.ops import functional_op, is_in_place
from diffprune.errors import RuleError
from diffprune.rules import OpRule, Unsupported, zero_if_first

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
    text = reason(between(lambda m, h: m.last(torch.cummax(h, 1).values)))
    assert "no rule says how this form of op maps channels: `aten.cummax`" in text
    assert "Teach it with `rules={torch.ops.aten.cummax: rule}`" in text


def test_vmap_freezes_what_goes_through_it(between, reason):
    rows = torch.vmap(lambda row: row.relu())
    text = reason(between(lambda m, h: m.last(rows(h))))
    assert "no rule says how this form of op maps channels: `_add_batch_dim`" in text
    assert "Write it without `torch.vmap`, or leave these layers out." in text


@pytest.mark.parametrize(
    ("op", "expected"),
    [(aten.add_.Tensor, True), (aten.add.out, False), (aten.__and__.Tensor, False)],
)
def test_only_ops_in_place_replace_their_argument(op, expected):
    assert is_in_place(op) is expected


def unsupported(*_):
    raise Unsupported


def takes_nothing(call):
    del call


@pytest.mark.parametrize("rule", [unsupported, takes_nothing])
def test_a_rule_may_not_know_a_form_of_its_op(between, reason, rule):
    model = between(lambda m, h: m.last(h.relu()))
    assert "no rule says how this form of op" in reason(model, rules={aten.relu: rule})


BUGS = {
    "ValueError": lambda *_: int("x"),
    "TypeError": lambda *_: len(3),
    "IndexError": lambda _, x: x.axes[7],
    "AttributeError": lambda _, x: x.axis,
    "KeyError": lambda *_: {}["x"],
}


@pytest.mark.parametrize("kind", BUGS)
def test_a_mistake_in_a_rule_is_raised_with_op_and_lines(between, x, kind):
    model = between(lambda m, h: m.last(h.relu()))
    with pytest.raises(RuleError) as error:
        find_groups(model, x, rules={aten.relu: BUGS[kind]})
    text = str(error.value)
    assert f"raised {kind}" in text
    assert "`aten.relu` in the model's own forward (conftest.py:" in text
    assert "test_infer.py:" in text
    assert "raise diffprune.rules.Unsupported" in text


def test_a_mistake_about_zeros_is_raised_with_op_and_lines(between, x):
    def zeros(known, step):
        return known[step]

    rule = OpRule(lambda _, x: x.axes, zeros=zeros)
    model = between(lambda m, h: m.last(h.relu()))
    with pytest.raises(RuleError, match=r"`zeros` for `aten.relu` .* raised TypeError"):
        find_groups(model, x, rules={aten.relu: rule})


def test_a_rule_states_what_becomes_of_zeros(between, sizes):
    def keep(call, x, *_):
        del call
        return x.axes

    model = between(lambda _, h: h.renorm(2, 0, 5.0).sum(1))
    assert sizes(model, rules={aten.renorm: keep}) == {}
    rule = OpRule(keep, zeros=zero_if_first)
    assert sizes(model, rules={aten.renorm: rule}) == {"first": 8}


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

import pytest
import torch
from torch import nn

from diffprune import remove
from diffprune._graph.model_runs import call_arguments, mode, own_arguments
from diffprune._graph.tracing import trace


def test_mode_restores_every_flag():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    model[1].eval()
    with mode(model, training=False):
        assert not model.training
    assert [module.training for module in model.modules()] == [True, True, False]


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [(1, ((1,), {})), ((1, 2), ((1, 2), {})), ({"a": 1}, ((), {"a": 1}))],
)
def test_inputs_are_one_value_positional_or_keywords(inputs, expected):
    assert call_arguments(inputs) == expected


def test_inputs_are_copied_and_a_tensor_that_is_given_twice_stays_one():
    x, y = torch.ones(2, requires_grad=True), torch.zeros(2)
    (a, b, (c, number)), _ = own_arguments((x, y, [x, 3]))
    assert a is c
    assert a is not x
    assert a.requires_grad
    assert a.is_leaf
    b.add_(1)
    assert not y.any()
    assert number == 3


class Scaling(nn.Module):
    """4 -> times 255, in the input itself -> fc 8 -> fc 2."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        x *= 255
        return self.last(self.first(x).tanh())


def test_a_model_that_writes_into_its_inputs_can_be_cut():
    model, x = Scaling().double(), torch.rand(2, 4, dtype=torch.float64)
    before = x.clone()
    small = remove(model, x, keep={"first": torch.arange(8) > 3})
    assert torch.equal(x, before)
    assert small.first.out_features == 4


def test_a_weight_that_a_forward_normalises_is_left_alone():
    model = nn.Embedding(7, 5, max_norm=0.5)
    before = model.weight.detach().clone()
    trace(model, torch.arange(7))
    assert torch.equal(model.weight, before)

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import diffprune as dp
from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.gates import BaseGate, Gate, fold_gates, gate_weight


@pytest.fixture
def layer():
    return nn.Linear(4, 3).double()


def close_half_(gate: Gate) -> None:
    with torch.no_grad():
        gate.logits[::2] = -9.0


def test_every_number_is_a_unit_by_default(layer):
    original = layer.weight.detach().clone()
    gate = gate_weight(layer)
    close_half_(gate)
    assert torch.equal(layer.weight, original * gate.values().view(3, 4))
    assert (layer.weight == 0).sum() == 6


@pytest.mark.parametrize("dim", [0, 1])
def test_rows_or_columns_can_be_gated_together(layer, dim):
    index = torch.arange(layer.weight.shape[dim])
    index = index.unsqueeze(1 - dim).expand(3, 4)
    gate = gate_weight(layer, index=index, min_open=0)
    close_half_(gate)
    zero = (layer.weight == 0).all(1 - dim)
    assert torch.equal(zero, ~gate.is_open())


def test_gradients_reach_weights_and_gates(layer):
    gate = gate_weight(layer, dropout=0.1)
    layer(torch.randn(2, 4, dtype=torch.float64)).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in layer.parameters())
    assert gate.logits.grad.shape == (12,)


def test_folding_gives_the_plain_layer_with_the_same_outputs(layer):
    names, x = set(layer.state_dict()), torch.randn(2, 4, dtype=torch.float64)
    model = nn.Sequential(layer, nn.ReLU()).train()
    close_half_(gate_weight(layer, dropout=0.5))
    expected = copy.deepcopy(model).eval()(x)
    folded = fold_gates(model)
    assert torch.equal(folded(x), expected)
    assert set(layer.state_dict()) == names
    assert type(layer) is nn.Linear
    assert folded.training


class Share(BaseGate):
    """What each number is multiplied by, itself."""

    def __init__(self, index):
        super().__init__(dim=0, index=index)
        self.share = nn.Parameter(torch.linspace(-1, 1, index.numel()).double())

    @property
    def size(self):
        return len(self.share)

    def values(self):
        return self.share.relu()

    def margin(self):
        return self.share

    def penalty(self):
        return self.share.relu().sum()


@pytest.mark.parametrize("has_pruner", [True, False])
def test_a_gate_of_another_method_is_folded_into_its_weight(layer, has_pruner):
    gate = Share(torch.arange(12).view(3, 4))
    parametrize.register_parametrization(layer, "weight", gate)
    model, x = nn.Sequential(layer), torch.randn(5, 4).double()
    expected = layer.weight.detach().clone()
    if has_pruner:
        dp.Pruner(model, x, strength=1e-3).finalize()
    else:
        fold_gates(model)
    assert type(layer) is nn.Linear
    assert torch.equal(layer.weight, expected)
    assert int((expected == 0).sum()) == 6


def test_folding_a_copy_leaves_the_original_gated(layer):
    gate_weight(layer)
    values = layer.weight.detach().clone()
    folded = fold_gates(copy.deepcopy(layer))
    assert type(folded) is nn.Linear
    assert torch.equal(layer.weight, values)
    assert type(fold_gates(layer)) is nn.Linear


@pytest.mark.parametrize("gated", [(0,), (1,), (0, 1)])
def test_a_weight_that_layers_share_is_folded_in_those_that_gate_it(gated):
    tied = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))
    tied[1].weight = tied[0].weight
    for number in gated:
        close_half_(gate_weight(tied[number]))
    tokens = torch.arange(9)
    expected = tied.eval()(tokens)
    torch.testing.assert_close(fold_gates(tied)(tokens), expected)
    assert tied[0].weight is not tied[1].weight


def test_a_layer_with_two_names_keeps_its_parameter(layer):
    gate_weight(layer)
    own = layer.parametrizations.weight.original
    assert fold_gates(nn.Sequential(layer, layer))[0].weight is own


def test_gates_can_be_taken_off_again(layer):
    original = layer.weight.detach().clone()
    close_half_(gate_weight(layer))
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert torch.equal(layer.weight, original)


def test_other_parametrizations_stay(layer):
    nn.utils.parametrizations.weight_norm(layer)
    fold_gates(layer)
    assert parametrize.is_parametrized(layer, "weight")


def test_an_unknown_parameter_lists_the_known_ones(layer):
    with pytest.raises(
        UnknownNameError,
        match="parameter of the name 'kernel'; it has weight, bias",
    ):
        gate_weight(layer, "kernel")


def test_a_parameter_is_gated_once(layer):
    gate_weight(layer)
    with pytest.raises(
        UnknownNameError, match="parameter of the name 'weight'; it has bias"
    ):
        gate_weight(layer)


def test_the_index_must_fit(layer):
    with pytest.raises(
        ArgumentError,
        match=r"shape of weight, \(3, 4\), .* shape \(4, 3\)",
    ):
        gate_weight(layer, index=torch.zeros(4, 3, dtype=torch.int64))

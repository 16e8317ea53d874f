"""Gates know their layers whatever these are called."""

import copy

import pytest
import torch
from torch import nn

import diffprune as dp
from diffprune.gates import named_gates

NAMES = (
    "keys",
    "values",
    "items",
    "pop",
    "update",
    "clear",
    "a/b",
    "100%",
    "%2F",
    "gates",
)


class Called(nn.Module):
    """3 -> a layer of this name, 7 -> a raw weight of another -> 2."""

    def __init__(self, layer, weight):
        super().__init__()
        self.first = nn.Linear(3, 5)
        self.add_module(layer, nn.Linear(5, 7))
        self.register_parameter(weight, nn.Parameter(torch.rand(2, 7)))
        self._called = layer, weight

    def forward(self, x):
        layer, weight = self._called
        hidden = self.get_submodule(layer)(self.first(x).relu())
        return hidden.relu() @ getattr(self, weight).T


@pytest.mark.parametrize(
    ("layer", "weight"), [*zip(NAMES, NAMES[1:] + NAMES[:1], strict=True)]
)
def test_layers_may_have_names_that_containers_have_for_themselves(
    tmp_path, layer, weight
):
    torch.manual_seed(0)
    x = torch.rand(4, 3)
    model, fresh = Called(layer, weight), Called(layer, weight)
    pruner = dp.Pruner(model, x, strength=1e-3)
    assert {group.name for group in pruner.groups} <= {"first", layer, weight}
    optimizer = torch.optim.SGD(pruner.parameter_groups(lr=0.1))
    next(iter(pruner.gates.values())).logits.data[1] = -9.0
    (model(x).square().mean() + pruner.penalty()).backward()
    optimizer.step()
    dp.save_checkpoint(tmp_path / "run", pruner, optimizer)
    again = dp.Pruner(fresh, x, strength=1e-3)
    dp.load_checkpoint(
        tmp_path / "run", again, torch.optim.SGD(again.parameter_groups(lr=0.1))
    )
    torch.testing.assert_close(fresh(x), model(x))
    assert len(named_gates(copy.deepcopy(model))) == 2
    expected = model.eval()(x)
    small = pruner.finalize()
    assert small.first.out_features + small.get_submodule(layer).out_features < 12
    torch.testing.assert_close(small(x), expected)


class ReadsByName(nn.Module):
    """3 -> fc 5 -> a raw weight of 7, read by its name -> fc 2, read by its name."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 5), nn.Linear(7, 2)
        self.weight = nn.Parameter(torch.rand(7, 5))

    def forward(self, x):
        assert isinstance(self.weight, nn.Parameter)
        hidden = self.first(x).relu() @ self.get_parameter("weight").T
        return hidden.relu() @ self.get_parameter("last.weight").T


def test_a_forward_may_ask_for_its_parameters_by_name(tmp_path):
    torch.manual_seed(0)
    x, model = torch.rand(4, 3), ReadsByName()
    pruner = dp.Pruner(model, x, strength=1e-3)
    gate = next(iter(pruner.gates.values()))
    gate.logits.data[1] = -9.0
    expected = model.eval()(x)
    small = pruner.finalize()
    torch.testing.assert_close(small(x), expected)
    torch.save(small, tmp_path / "whole.pt")  # no mark of ours is left on a weight
    assert "_is_param" not in vars(small.weight)

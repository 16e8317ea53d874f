"""Gates know their layers whatever these are called."""

import copy

import pytest
import torch
from torch import nn

import diffprune as dp
from diffprune.errors import ArgumentError
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


class ReadsInOrder(nn.Module):
    """3 -> fc 5, minus its slow mean -> fc 7 -> fc 2, by the places of parameters."""

    def __init__(self):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(5), requires_grad=False)
        self.layers = nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 7), nn.Linear(7, 2))

    def forward(self, x):
        mean, *parameters = self.parameters()
        first, second, third = parameters[:2], parameters[2:4], parameters[4:6]
        hidden = nn.functional.linear(x, *first).relu()
        if self.training:
            mean.data.lerp_(hidden.detach().mean(0), 0.1)
        hidden = nn.functional.linear(hidden - mean, *second).relu()
        return nn.functional.linear(hidden, *third)


def test_a_forward_may_go_through_its_parameters_in_order():
    torch.manual_seed(0)
    x, model = torch.rand(4, 3), ReadsInOrder()
    pruner = dp.Pruner(model, x, strength=1e-3)
    pruner.gates["mean"].logits.data[1] = -9.0
    expected = model.eval()(x)
    torch.testing.assert_close(pruner.finalize()(x), expected)


def test_what_a_forward_changes_is_not_moved_by_looking_at_it():
    torch.manual_seed(0)
    x, model = torch.rand(4, 3), ReadsInOrder()
    pruner = dp.Pruner(model, x, strength=1e-3, remove_every=1)
    pruner.gates["mean"].logits.data[1] = -9.0
    optimizer = torch.optim.SGD(pruner.parameter_groups(lr=0.0))
    (model(x).square().mean() + pruner.penalty()).backward()
    mean = model.mean.detach().clone()
    assert pruner.step(optimizer).units["mean"] == 4
    torch.testing.assert_close(model.mean.detach(), mean[[0, 2, 3, 4]])


@pytest.mark.parametrize("is_reassigned", [False, True])
def test_a_forward_that_changes_what_a_gate_would_multiply_is_refused(is_reassigned):
    class MomentumEncoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.fast, self.slow = (
                nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
                for _ in range(2)
            )

        def forward(self, x):
            pairs = zip(self.fast.parameters(), self.slow.parameters(), strict=True)
            for fast, slow in pairs if self.training else ():
                if is_reassigned:
                    slow.data = 0.9 * slow.data + 0.1 * fast.data
                else:
                    slow.data.lerp_(fast.data, 0.1)
            return self.fast(x) - self.slow(x)

    with pytest.raises(ArgumentError, match=r"changes `slow\.2\.weight` itself"):
        dp.Pruner(MomentumEncoder(), torch.rand(4, 3), strength=1e-3)


def test_a_codebook_that_the_forward_changes_is_refused():
    class Codebook(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.decode = nn.Linear(3, 5), nn.Linear(5, 2)
            self.codes = nn.Parameter(torch.rand(7, 5), requires_grad=False)

        def forward(self, x):
            h = self.encode(x).relu()
            if self.training:
                self.codes.data.lerp_(h.detach().mean(0).expand_as(self.codes), 0.1)
            nearest = torch.cdist(h, self.codes).argmin(dim=1)
            return self.decode(h + (self.codes[nearest] - h).detach())

    x = torch.rand(4, 3)
    with pytest.raises(ArgumentError, match=r"freeze=\['codes'\]"):
        dp.Pruner(Codebook(), x, strength=1e-3)
    with pytest.raises(ArgumentError, match="asked for with freeze='codes'"):
        dp.Pruner(Codebook(), x, strength=1e-3, freeze=["codes"])

"""Gates of other methods, placed in a model: they are cut and folded like ours."""

import copy

import pytest
import torch
from torch import nn, optim

import diffprune as dp
from diffprune.gates import BaseGate, GateLike, named_gates


class Scale(BaseGate):
    """As large as its parameter, and closed where that is not positive."""

    shared = frozenset({"level"})

    def __init__(self, size, *, sign=1.0, **options):
        super().__init__(**options)
        self.sign = sign
        self.scale = nn.Parameter(0.5 + torch.rand(size))
        self.level = nn.Parameter(torch.ones(1))

    @property
    def size(self):
        return self.scale.numel()

    def values(self):
        return self.sign * self.scale.relu() * self.level

    def margin(self):
        return self.scale

    def penalty(self):
        return self.scale.relu().sum()


class Noisy(Scale):
    per_example = True

    def draw(self, examples):
        return self.values() * (1 + torch.rand(examples, self.size).to(self.scale))


class Net(nn.Module):
    """Channels, flat features and hidden units, each behind a gate."""

    def __init__(self, make):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 5, 3), nn.Linear(20, 7)
        self.out = nn.Linear(7, 3)
        self.gate_conv, self.gate_flat, self.gate_fc = make(5), make(20), make(7)

    def forward(self, x):
        x = self.gate_conv(self.conv(x).relu())
        x = self.gate_flat(x.flatten(1))
        return self.out(self.gate_fc(self.fc(x).relu()))


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(6, 1, 4, 4).double()


def closed(make):
    model = Net(make).double()
    model.gate_conv.scale.data[2] = -1.0
    model.gate_flat.scale.data[[0, 5]] = -1.0
    model.gate_fc.scale.data[3:5] = -1.0
    return model


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_its_units_leave_the_model_and_the_optimizer(x, sign):
    model = closed(lambda size: Scale(size, sign=sign))
    pruner = dp.Pruner(model, x, strength=1e-3)
    optimizer = optim.Adam(pruner.parameter_groups(lr=1e-3))
    (model(x).square().mean() + pruner.penalty()).backward()
    optimizer.step()
    expected = copy.deepcopy(model).eval()(x)
    record = pruner.remove_closed_(optimizer)
    assert record.units == {"gate_conv": 4, "gate_flat": 14, "gate_fc": 5}
    torch.testing.assert_close(model.eval()(x), expected, rtol=0, atol=1e-12)
    gate = model.gate_fc
    assert optimizer.state[gate.scale]["exp_avg"].shape == (5,)
    assert gate.level.shape == (1,)
    small = pruner.finalize()
    torch.testing.assert_close(small(x), expected, rtol=0, atol=1e-12)
    assert not named_gates(small)


def test_the_state_of_a_cut_gate_loads_into_a_whole_one(x):
    model = closed(Scale)
    pruner = dp.Pruner(model, x, strength=1e-3)
    pruner.remove_closed_()
    gate = Scale(20).double()
    gate.index = torch.arange(20)
    state = model.gate_flat.state_dict()
    state = {name: value for name, value in state.items() if "." not in name}
    gate.index = None if "index" not in state else gate.index
    gate.load_state_dict(state)
    assert torch.equal(gate.scale, model.gate_flat.scale)


def test_values_of_each_example():
    gate = Noisy(3).double()
    ones = torch.ones(50, 3, 2).double()
    drawn = gate(ones)
    assert (drawn.std(0) > 0).all()
    assert torch.equal(drawn[..., 0], drawn[..., 1])
    assert torch.equal(gate.eval()(ones), gate.values()[None, :, None] * ones)


def test_draws_follow_an_index_and_other_dimensions():
    gate = Noisy(2, dim=2, index=torch.tensor([0, 1, 1]))
    drawn = gate(torch.ones(4, 5, 3))
    assert torch.equal(drawn[..., 1], drawn[..., 2])
    assert torch.equal(drawn[:, 0], drawn[:, 4])
    assert not torch.equal(drawn[0], drawn[1])


def test_it_is_a_gate_and_abstract_without_its_formulas():
    assert isinstance(Scale(3), GateLike)
    with pytest.raises(TypeError, match="abstract"):
        BaseGate()


class Fixed(BaseGate):
    """A gate that nothing trains: it is opened and closed by hand."""

    def __init__(self, size):
        super().__init__()
        self.register_buffer("mask", torch.ones(size))

    @property
    def size(self):
        return len(self.mask)

    def values(self):
        return self.mask

    def margin(self):
        return self.mask - 0.5

    def penalty(self):
        return self.mask.sum()


@pytest.mark.parametrize("is_placed", [True, False])
def test_a_gate_may_have_no_parameter(is_placed):
    layers = [nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 2)]
    if is_placed:
        layers.insert(1, Fixed(8))
    options = {} if is_placed else {"gate": lambda group: Fixed(group.size)}
    x = torch.rand(3, 5)
    pruner = dp.Pruner(nn.Sequential(*layers), x, strength=0.0, **options)
    assert pruner.penalty() == 0
    (gate,) = pruner.gates.values()
    gate.mask[:3] = 0
    before = pruner.model(x)
    assert pruner.remove_closed_() is not None
    torch.testing.assert_close(pruner.finalize()(x), before)


def test_a_budget_names_the_gate_it_cannot_steer(x):
    with pytest.raises(dp.errors.ArgumentError, match="gate_conv"):
        dp.Pruner(Net(Scale).double(), x, budget=dp.Budget(macs=0.5, steps=10))


class Named(Scale):
    """It has a name for each unit, which is no tensor."""

    def __init__(self, size):
        super().__init__(size)
        self.names = [f"unit {number}" for number in range(size)]

    def keep_(self, mask):
        super().keep_(mask)
        self.names = [self.names[number] for number in mask.nonzero().flatten()]

    def get_extra_state(self):
        return {"names": self.names}

    def set_extra_state(self, state):
        self.names = state["names"]


def test_what_is_no_tensor_is_cut_and_saved_with_a_gate(x, tmp_path):
    model = closed(Named)
    pruner = dp.Pruner(model, x, strength=1e-3)
    optimizer = optim.Adam(pruner.parameter_groups(lr=1e-3))
    pruner.remove_closed_(optimizer)
    names = [f"unit {number}" for number in (0, 1, 2, 5, 6)]
    assert model.gate_fc.names == names
    dp.save_checkpoint(tmp_path / "run.ckpt", pruner, optimizer)
    other = dp.Pruner(Net(Named).double(), x, strength=1e-3)
    fresh = optim.Adam(other.parameter_groups(lr=1e-3))
    dp.load_checkpoint(tmp_path / "run.ckpt", other, fresh)
    assert other.model.gate_fc.names == names

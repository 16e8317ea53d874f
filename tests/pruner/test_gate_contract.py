"""Gates of users are asked before anything changes, and refused in their words."""

import copy

import pytest
import torch
from torch import nn, optim

import diffprune as dp
from diffprune.errors import ArgumentError, RemovalError
from diffprune.gates import BaseGate


class Scale(BaseGate):
    """Closed where its parameter is not positive."""

    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(0.5 + torch.rand(size))

    @property
    def size(self):
        return len(self.scale)

    def values(self):
        return self.scale.relu()

    def margin(self):
        return self.scale

    def penalty(self):
        return self.scale.relu().sum()


class Net(nn.Module):
    """Two hidden layers, gates behind them if there are any."""

    def __init__(self, first=None, second=None):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(5, 8), nn.Linear(8, 7), nn.Linear(7, 3)
        self.first, self.second = first or nn.Identity(), second or nn.Identity()

    def forward(self, x):
        hidden = self.first(self.a(x).relu())
        return self.c(self.second(self.b(hidden).relu()))


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(6, 5)


def pruner_of(make, x, *, is_placed):
    model = Net(make(8), make(7)) if is_placed else Net()
    options = {} if is_placed else {"gate": lambda group: make(group.size)}
    return dp.Pruner(model, x, strength=1e-3, **options)


def close(pruner, *units):
    for gate in pruner.gates.values():
        gate.scale.data[list(units)] = -1.0


def variant(**members):
    return type("Odd", (Scale,), members)


NAN = float("nan")
ODD = [
    ("values", lambda self: self.scale[:, None], r"shape \(8, 1\)"),
    ("values", lambda self: self.scale.sum(), r"float32 of shape \(\)"),
    ("values", lambda self: self.scale[1:], r"shape \(7,\)"),
    ("values", lambda self: self.scale + 0j, "complex64"),
    ("values", lambda _: None, "got None"),
    ("values", lambda self: self.scale * NAN, "returns NaN"),
    ("values", lambda _: 1 / 0, "failed: ZeroDivisionError"),
    ("margin", lambda _: 1.0, r"got 1\.0"),
    ("margin", lambda self: self.scale * NAN, "returns NaN"),
    ("is_open", lambda self: self.scale, "one bool per unit.*float32"),
    ("is_open", lambda _: torch.ones(()) > 0, r"one bool per unit.*shape \(\)"),
    ("reopening", lambda _: 0.0, r"got 0\.0"),
]


@pytest.mark.parametrize("is_placed", [True, False])
@pytest.mark.parametrize(("what", "returns", "words"), ODD)
def test_an_odd_answer_is_refused_before_anything_changes(
    x, what, returns, words, is_placed
):
    odd, plain = variant(**{what: returns}), Net()
    model = Net(odd(8), odd(7)) if is_placed else plain
    before, state = str(model), [*model.state_dict()]
    options = {} if is_placed else {"gate": lambda group: odd(group.size)}
    name = "first" if is_placed else "a"
    with pytest.raises(
        ArgumentError, match=f"`{what}` of the gate of `{name}`.*{words}"
    ):
        dp.Pruner(model, x, strength=1e-3, **options)
    assert (str(model), [*model.state_dict()]) == (before, state)


@pytest.mark.parametrize("size", [8.0, torch.tensor(8), 0])
def test_a_size_is_a_whole_number(x, size):
    odd = variant(size=property(lambda _: size))
    with pytest.raises(ArgumentError, match=r"`size` of the gate of `first`.*whole"):
        dp.Pruner(Net(odd(8)), x, strength=1e-3)


@pytest.mark.parametrize("is_placed", [True, False])
@pytest.mark.parametrize("cost", [0.5, None, torch.ones(7), torch.ones(1)])
def test_a_penalty_is_one_number(x, cost, is_placed):
    pruner = pruner_of(variant(penalty=lambda _: cost), x, is_placed=is_placed)
    with pytest.raises(ArgumentError, match=r"`penalty` of the gate of .* one number"):
        pruner.penalty()


def test_a_penalty_may_need_a_forward_pass_first(x):
    class Seen(Scale):
        seen = None

        def values(self):
            self.seen = super().values()
            return self.seen

        def penalty(self):
            return self.seen.sum()

    pruner = pruner_of(Seen, x, is_placed=True)
    pruner.model(x)
    assert pruner.penalty() > 0


class Counting(Scale):
    """Every pass in training makes it sharper."""

    def __init__(self, size):
        super().__init__(size)
        self.register_buffer("passes", torch.zeros(()))

    def values(self):
        if self.training:
            self.passes += 1
        return super().values() * (1 + self.passes / 100)


@pytest.mark.parametrize("is_placed", [True, False])
def test_a_gate_that_counts_its_passes_is_not_asked_in_vain(x, is_placed):
    pruner = pruner_of(Counting, x, is_placed=is_placed)
    pruner.model(x)
    close(pruner, 1, 2)
    expected = copy.deepcopy(pruner.model).eval()(x)
    assert pruner.remove_closed_() is not None
    assert {float(gate.passes) for gate in pruner.gates.values()} == {1.0}
    torch.testing.assert_close(pruner.model.eval()(x), expected)


@pytest.mark.parametrize("is_final", [True, False])
def test_what_is_closed_has_to_be_zero(x, is_final):
    pruner = pruner_of(variant(values=lambda self: self.scale), x, is_placed=True)
    close(pruner, 1)
    remove = pruner.finalize if is_final else pruner.remove_closed_
    with pytest.raises(RemovalError, match=r"gate of `first`.*closed.*by 1, in eval"):
        remove()
    assert pruner.model.a.out_features == 8


class InParts(Scale):
    """What it holds per unit is not its own."""

    def __init__(self, size):
        super().__init__(size)
        self.parts = nn.ParameterList([torch.ones(size)])

    def values(self):
        return super().values() * self.parts[0]


@pytest.mark.parametrize("is_placed", [True, False])
@pytest.mark.parametrize("is_final", [True, False])
@pytest.mark.parametrize("make", [InParts, variant(keep_=lambda *_: None)])
def test_a_gate_that_was_not_cut_whole_is_named(x, make, is_placed, is_final):
    pruner = pruner_of(make, x, is_placed=is_placed)
    close(pruner, 1, 2)
    remove = pruner.finalize if is_final else pruner.remove_closed_
    with pytest.raises(RemovalError, match=r"told to keep(.|\n)*Let its `keep_` cut"):
        remove()
    assert pruner.model.a.out_features == 8
    assert {gate.size for gate in pruner.gates.values()} == {8, 7}


class Holding(Scale):
    """It is cut after the gate that it holds, and counts that one's units."""

    def __init__(self, size):
        super().__init__(size)
        self.gate = Scale(size)

    size = property(lambda self: self.gate.size)

    def keep_(self, mask):
        self.gate.keep_(mask)
        super().keep_(mask)


@pytest.mark.parametrize("is_placed", [True, False])
def test_a_gate_that_fails_as_it_is_cut_is_named(x, is_placed):
    pruner = pruner_of(Holding, x, is_placed=is_placed)
    close(pruner, 1)
    with pytest.raises(
        RemovalError, match=r"`keep_` of the gate of.*failed(.|\n)*first"
    ):
        pruner.remove_closed_()
    assert pruner.model.a.out_features == 8
    assert {gate.gate.size for gate in pruner.gates.values()} == {8, 7}


class Columns(Scale):
    """Its units are the columns of its parameter."""

    def __init__(self, size):
        super().__init__(size)
        self.pair = nn.Parameter(torch.rand(2, size))

    def values(self):
        return super().values() * self.pair.sum(0)

    def keep_(self, mask):
        super().keep_(mask)
        self.pair = nn.Parameter(self.pair.detach()[:, mask])


@pytest.mark.parametrize("is_placed", [True, False])
def test_optimizers_follow_units_along_any_dimension(x, is_placed):
    pruner = pruner_of(Columns, x, is_placed=is_placed)
    optimizer = optim.Adam(pruner.parameter_groups(lr=1e-3))
    (pruner.model(x).square().mean() + pruner.penalty()).backward()
    optimizer.step()
    gate = next(iter(pruner.gates.values()))
    moments, gradient = optimizer.state[gate.pair]["exp_avg"], gate.pair.grad
    close(pruner, 1, 2)
    pruner.remove_closed_(optimizer)
    stays = [0, *range(3, 8)]
    assert torch.equal(optimizer.state[gate.pair]["exp_avg"], moments[:, stays])
    assert torch.equal(gate.pair.grad, gradient[:, stays])


def reshaped(self, mask):
    self.scale = nn.Parameter(self.scale.detach()[mask, None])


def renamed(self, mask):
    self.scale_now = nn.Parameter(self.scale.detach()[mask])


def in_place(self, mask):
    self.scale.data = self.scale.data[mask]


@pytest.mark.parametrize("is_placed", [True, False])
@pytest.mark.parametrize("keep_", [reshaped, renamed, in_place])
def test_a_parameter_that_no_optimizer_can_follow_is_refused(x, keep_, is_placed):
    pruner = pruner_of(variant(keep_=keep_), x, is_placed=is_placed)
    optimizer = optim.Adam(pruner.parameter_groups(lr=1e-3))
    close(pruner, 1)
    gates, scales = [*pruner.gates.values()], [g.scale for g in pruner.gates.values()]
    with pytest.raises(RemovalError, match=r"`keep_` of the gate of.*left `scale"):
        pruner.remove_closed_(optimizer)
    assert all(gate.scale is old for gate, old in zip(gates, scales, strict=True))
    assert [len(old) for old in scales] == [8, 7]


class Warm(Scale):
    """A number that all gates have in common."""

    def __init__(self, size, warmth):
        super().__init__(size)
        self.warmth = warmth

    def values(self):
        return super().values() * self.warmth


@pytest.mark.parametrize("is_placed", [True, False])
def test_gates_may_share_a_number_with_each_other_and_with_the_model(x, is_placed):
    warmth = nn.Parameter(torch.tensor(2.0))
    model = Net(Warm(8, warmth), Warm(7, warmth)) if is_placed else Net()
    model.warmth = warmth
    options = {} if is_placed else {"gate": lambda group: Warm(group.size, warmth)}
    pruner = dp.Pruner(model, x, strength=1e-3, **options)
    optimizer = optim.Adam(pruner.parameter_groups(lr=1e-3))
    model(x).square().mean().backward()
    optimizer.step()
    close(pruner, 1)
    pruner.remove_closed_(optimizer)
    assert {id(gate.warmth) for gate in pruner.gates.values()} == {id(warmth)}
    pruner.finalize(optimizer)
    assert warmth in optimizer.state


@pytest.mark.parametrize("is_placed", [True, False])
def test_gates_do_not_share_what_is_cut_in_each(x, is_placed):
    one = nn.Parameter(torch.ones(8))

    def make(_):
        gate = Scale(8)
        gate.scale = one
        return gate

    model = Net()
    model.b, model.c = nn.Linear(8, 8), nn.Linear(8, 3)
    if is_placed:
        model.first, model.second = make(8), make(8)
    options = {} if is_placed else {"gate": make}
    with pytest.raises(ArgumentError, match=r"share `scale`.*a removal would part"):
        dp.Pruner(model, x, strength=1e-3, **options)


class ByReader(Scale):
    """Its units cost what the weights of their reader are."""

    def __init__(self, size, reader):
        super().__init__(size)
        self.reader = reader

    def penalty(self):
        (reader,) = self.reader
        return (self.scale.relu() * reader.weight.abs().sum(0)).sum()


@pytest.mark.parametrize("is_placed", [True, False])
def test_a_gate_holds_no_part_of_the_model(x, is_placed):
    model = Net()
    model.second = ByReader(7, model.c) if is_placed else model.second
    readers = {"a": model.b, "b": model.c}
    make = {"gate": lambda group: ByReader(group.size, readers[group.name])}
    with pytest.raises(ArgumentError, match=r"holds `reader`.*part of the model"):
        dp.Pruner(model, x, strength=1e-3, **({} if is_placed else make))


def test_a_gate_does_not_have_the_parameter_of_a_layer(x):
    model = Net(gate := Scale(8))
    gate.scale = model.a.bias
    with pytest.raises(ArgumentError, match=r"holds `scale`.*part of the model"):
        dp.Pruner(model, x, strength=1e-3)


@pytest.mark.parametrize("is_placed", [True, False])
def test_a_gate_may_know_a_layer_that_it_does_not_hold(x, is_placed):
    model = Net()
    model.second = ByReader(7, [model.c]) if is_placed else model.second
    readers = {"a": model.b, "b": model.c}
    make = {"gate": lambda group: ByReader(group.size, [readers[group.name]])}
    pruner = dp.Pruner(model, x, strength=1e-3, **({} if is_placed else make))
    close(pruner, 1)
    pruner.remove_closed_()
    assert pruner.penalty() > 0
    small = pruner.finalize()
    assert small.c.in_features == 6


class Noisy(Scale):
    per_example = True

    def draw(self, examples):
        return self.values() * torch.rand(examples, self.size)


def test_a_draw_for_each_example_needs_a_place_in_the_model(x):
    with pytest.raises(ArgumentError, match=r"gate of `a`.*draws values for each"):
        pruner_of(Noisy, x, is_placed=False)
    assert pruner_of(Noisy, x, is_placed=True).gates


def test_a_draw_has_a_row_for_each_example(x):
    odd = type("Odd", (Noisy,), {"draw": lambda self, _: self.values()})
    with pytest.raises(ArgumentError, match=r"`draw` of .*`first`.*of shape \(2, 8\)"):
        pruner_of(odd, x, is_placed=True)


class OneOfTheirOwn(nn.Module):
    """All that a gate has, and no `BaseGate`."""

    def __init__(self, size):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(size))

    size, values, margin = Scale.size, Scale.values, Scale.margin
    penalty = Scale.penalty

    def is_open(self):
        return self.scale > 0

    def reopening(self):
        return torch.zeros(self.size)

    def keep_(self, mask):
        self.scale = nn.Parameter(self.scale.detach()[mask])

    def forward(self, x):
        return x * self.values()


def test_another_gate_than_a_base_gate_cannot_stand_in_a_model(x):
    with pytest.raises(ArgumentError, match=r"`first` in this model.*has all that a"):
        dp.Pruner(Net(OneOfTheirOwn(8)), x, strength=1e-3)
    assert pruner_of(OneOfTheirOwn, x, is_placed=False).gates


@pytest.mark.parametrize("gate", [dp.Gate, Scale(8), lambda _: {}["a"]])
def test_what_fails_to_make_a_gate_is_told_what_it_is_called_with(x, gate):
    with pytest.raises(
        ArgumentError, match=r"called with a group, here `a` of 8 units"
    ):
        dp.Pruner(Net(), x, strength=1e-3, gate=gate)

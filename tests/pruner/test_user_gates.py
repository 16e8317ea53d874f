"""Gates that users place: residual streams, flattened maps, what is left of them."""

import copy

import pytest
import torch
from torch import nn, optim

import diffprune as dp
from diffprune._surgery.replacement_modules import Select
from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.gates import BaseGate


class Block(nn.Module):
    """x -> [norm -> relu ->] conv -> norm -> relu -> gate -> conv -> (+ x) -> gate."""

    def __init__(self, width, hidden, *, pre_activation):
        super().__init__()
        first = nn.Sequential(nn.BatchNorm2d(width), nn.ReLU())
        self.first = first if pre_activation else nn.Identity()
        self.conv1 = nn.Conv2d(width, hidden, 3, padding=1)
        self.norm = nn.BatchNorm2d(hidden)
        self.inner = dp.Gate(hidden)
        self.conv2 = nn.Conv2d(hidden, width, 3, padding=1)
        self.outer = dp.Gate(width)

    def forward(self, x):
        y = self.conv1(self.first(x))
        y = self.inner(self.norm(y).relu())
        return self.outer(x + self.conv2(y))


class Stream(nn.Module):
    """conv stem -> 3 residual blocks -> relu -> mean -> fc."""

    def __init__(self, *, pre_activation):
        super().__init__()
        self.stem = nn.Conv2d(3, 13, 3, padding=1)
        self.blocks = nn.Sequential(
            *(Block(13, hidden, pre_activation=pre_activation) for hidden in (7, 11, 5))
        )
        self.fc = nn.Linear(13, 4)

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x)).relu().mean((2, 3)))


CLOSED = {
    "blocks.0.outer": [0, 1, 2, 3],
    "blocks.1.outer": [0, 1, 4, 5],
    "blocks.2.outer": [0, 4, 6, 7],
    "blocks.0.inner": [2, 3],
    "blocks.2.inner": [0],
}
OUTER = [f"blocks.{i}.outer" for i in range(3)]


def make(*, pre_activation):
    """A pruner of a residual network whose blocks close different units."""
    model = Stream(pre_activation=pre_activation).double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias)
    x = torch.randn(4, 3, 6, 6, dtype=torch.float64)
    pruner = dp.Pruner(model, x, remove_every=lambda _: False, strength=1e-5)
    for name, closed in CLOSED.items():
        pruner.gates[name].logits.data[closed] -= 5.0
    return pruner, x


@pytest.fixture(params=[False, True], ids=["plain", "pre_activation"])
def stream(request):
    return make(pre_activation=request.param)


@pytest.mark.parametrize("training", [False, True])
def test_a_residual_stream_is_cut_exactly(stream, training):
    pruner, x = stream
    whole = copy.deepcopy(pruner.model).train(training)
    assert pruner.remove_closed_().certificate.max_relative < 1e-12
    pruner.model.train(training)
    torch.testing.assert_close(pruner.model(x), whole(x), rtol=0, atol=1e-10)


def test_layouts_only_shrink_along_the_stream():
    pruner, _ = make(pre_activation=False)
    pruner.remove_closed_()
    units = [set(range(13)) - set(CLOSED[name]) for name in OUTER]
    layouts = [units[0] | units[1] | units[2], units[1] | units[2], units[2]]
    widths = [pruner.shape().units[name] for name in OUTER]
    assert widths == [len(layout) for layout in layouts]
    assert pruner.model.blocks[1].conv1.in_channels == len(layouts[0])
    assert pruner.model.blocks[2].conv1.in_channels == len(layouts[1])
    assert pruner.model.fc.in_features == len(layouts[2])


def test_a_closed_unit_that_a_norm_turns_into_a_constant_stays():
    pruner, _ = make(pre_activation=True)
    pruner.remove_closed_()
    last = 13 - len(CLOSED["blocks.2.outer"])
    assert [pruner.shape().units[name] for name in OUTER] == [13, 13, last]


def test_a_residual_stream_trains_on_as_if_nothing_had_gone(stream):
    pruner, x = stream
    model = pruner.model.train()
    optimizer = optim.SGD(pruner.parameter_groups(lr=1e-2), momentum=0.9)
    whole, other = copy.deepcopy((model, optimizer))
    pruner.remove_closed_(optimizer)
    for net, steps in ((model, optimizer), (whole, other)):
        for _ in range(3):
            steps.zero_grad()
            (net(x).square().mean() + dp.expected_l0(net, 1e-3)).backward()
            steps.step()
    torch.testing.assert_close(model(x), whole(x), rtol=0, atol=1e-9)


def test_finished_gates_are_identities_or_selections(stream):
    pruner, x = stream
    whole = copy.deepcopy(pruner.model).eval()
    small = pruner.finalize().eval()
    torch.testing.assert_close(small(x), whole(x), rtol=0, atol=1e-10)
    assert not any(isinstance(module, dp.Gate) for module in small.modules())
    assert all(type(block.inner) is nn.Identity for block in small.blocks)
    kinds = {type(block.outer) for block in small.blocks}
    assert kinds <= {nn.Identity, Select}
    assert type(small) is Stream


class Flattened(nn.Module):
    """conv -> relu -> flatten -> gate on single features -> fc -> gate -> fc."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)
        self.gate1 = dp.Gate(48)
        self.fc1 = nn.Linear(48, 9)
        self.gate2 = dp.Gate(9)
        self.fc2 = nn.Linear(9, 2)

    def forward(self, x):
        x = self.gate1(self.conv(x).relu().flatten(1))
        return self.fc2(self.gate2(self.fc1(x).relu()))


@pytest.mark.parametrize("whole_filter", [False, True])
def test_gates_after_a_flatten(whole_filter):
    model, x = Flattened().double(), torch.randn(2, 1, 6, 6, dtype=torch.float64)
    pruner = dp.Pruner(model, x, strength=1e-5)
    closed = range(16) if whole_filter else [0, 5, 17, 40]
    pruner.gates["gate1"].logits.data[list(closed)] -= 5.0
    pruner.gates["gate2"].logits.data[:3] -= 5.0
    before = model.eval()(x)
    small = pruner.finalize()
    torch.testing.assert_close(small(x), before, rtol=0, atol=1e-12)
    assert small.conv.out_channels == (2 if whole_filter else 3)
    assert small.fc1.in_features == 48 - len(closed)
    assert type(small.gate2) is nn.Identity
    assert type(small.gate1) is (nn.Identity if whole_filter else Select)


def test_gates_in_a_row_that_let_nothing_through_leave_a_model_that_runs():
    class InARow(Flattened):
        def __init__(self):
            super().__init__()
            self.gate0 = dp.Gate(3)

        def forward(self, x):
            x = self.gate1(self.gate0(self.conv(x).relu()).flatten(1))
            return self.fc2(self.gate2(self.fc1(x).relu()))

    model, x = InARow().double(), torch.randn(2, 1, 6, 6, dtype=torch.float64)
    pruner = dp.Pruner(model, x, strength=1e-5)
    pruner.gates["gate0"].logits.data[2] -= 5.0
    pruner.gates["gate1"].logits.data[:32] -= 5.0  # what is open is all of filter 2
    before = model.eval()(x)
    small = pruner.finalize()
    torch.testing.assert_close(small(x), before, rtol=0, atol=1e-12)
    assert small.conv.out_channels == 1


@pytest.mark.parametrize("options", [{"dropout": 0.3}, {"u": "softmax"}, {}])
def test_finalizing_in_train_mode_takes_the_values_of_inference(options):
    class Net(Flattened):
        def __init__(self):
            super().__init__()
            self.gate2 = dp.Gate(9, **options)

    model, x = Net().double(), torch.randn(2, 1, 6, 6, dtype=torch.float64)
    pruner = dp.Pruner(model, x, strength=1e-5)
    before = model.eval()(x)
    model.train()
    small = pruner.finalize()
    assert small.training
    torch.testing.assert_close(small.eval()(x), before, rtol=0, atol=1e-12)


def test_gates_are_not_made_for_a_model_that_has_some():
    with pytest.raises(ArgumentError, match="this model has its own: `gate1`, `gate2`"):
        dp.Pruner(
            Flattened(),
            torch.rand(1, 1, 6, 6),
            gate=lambda g: dp.Gate(g.size),
            strength=1e-5,
        )


def test_patterns_name_placed_gates():
    model, x = Flattened(), torch.rand(1, 1, 6, 6)
    with pytest.raises(
        UnknownNameError, match="nothing matches `fc`; there are `gate1`"
    ):
        dp.Pruner(model, x, strength={"fc": 1.0})
    pruner = dp.Pruner(model, x, strength={"gate2": 2.0})
    assert pruner.penalty() <= 2.0 * 9


def test_what_a_gate_with_an_index_covers_is_left_whole():
    class Shared(Flattened):
        def __init__(self):
            super().__init__()
            self.gate2 = dp.Gate(3, index=torch.arange(9) % 3)

    model, x = Shared().double(), torch.randn(2, 1, 6, 6, dtype=torch.float64)
    pruner = dp.Pruner(model, x, strength=1e-5)
    pruner.gates["gate2"].logits.data[0] -= 5.0
    pruner.gates["gate1"].logits.data[:4] -= 5.0
    before = model.eval()(x)
    small = pruner.finalize()
    torch.testing.assert_close(small(x), before, rtol=0, atol=1e-12)
    assert small.fc1.out_features == 9


def test_a_model_with_placed_gates_has_one_pruner():
    model, x = Flattened(), torch.rand(1, 1, 6, 6)
    dp.Pruner(model, x, strength=1e-5)
    with pytest.raises(ArgumentError, match="already has a pruner"):
        dp.Pruner(model, x, strength=1e-5)


class Best(BaseGate):
    """As many of the best scores are open as a buffer says; straight through."""

    def __init__(self, size, count):
        super().__init__()
        self.scores = nn.Parameter(torch.rand(size))
        self.register_buffer("count", torch.tensor(count))

    @property
    def size(self):
        return len(self.scores)

    def margin(self):
        ranked = self.scores.detach().sort(descending=True).values
        count = int(self.count)
        bar = ranked[count] if count < self.size else ranked[-1] - 1
        return self.scores - bar

    def values(self):
        is_open = (self.margin() > 0).to(self.scores)
        return is_open + self.scores - self.scores.detach()

    def penalty(self):
        return self.scores.square().sum()


def test_values_of_a_gate_may_branch_on_numbers():
    model, x = Flattened(), torch.randn(2, 1, 6, 6, dtype=torch.float64)
    model.gate1 = Best(model.gate1.size, 3)
    model.double().eval()
    pruner = dp.Pruner(model, x, strength=1e-5)
    before = model(x)
    model(x).sum().backward()
    assert model.gate1.scores.grad is not None
    model.zero_grad()
    assert pruner.remove_closed_().units["gate1"] == 3
    torch.testing.assert_close(pruner.finalize()(x), before, rtol=0, atol=1e-12)


class Twice(nn.Module):
    """One gate behind two layers."""

    def __init__(self, gate):
        super().__init__()
        self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 8)
        self.c, self.gate = nn.Linear(8, 3), gate

    def forward(self, x):
        hidden = self.gate(self.a(x).relu())
        return self.c(self.gate(self.b(hidden).relu()))


class TwiceAndRead(Twice):
    """No layer alone reads what one of the uses returns, and none alone makes it."""

    def forward(self, x):
        hidden = self.gate(self.a(x).sigmoid())
        return self.c(self.gate(self.b(hidden).relu())) + hidden.sum()


@pytest.mark.parametrize(
    ("kind", "left"), [(Twice, nn.Identity), (TwiceAndRead, Select)]
)
def test_a_gate_that_is_used_twice_is_folded_at_both_places(kind, left):
    torch.manual_seed(0)
    model, x = kind(dp.Gate(8)).double().eval(), torch.randn(4, 5).double()
    pruner = dp.Pruner(model, x, strength=1e-5)
    model.gate.logits.data += 0.3 * torch.randn(8).abs()
    model.gate.logits.data[[1, 4]] = -5.0
    before = model(x)
    small = pruner.finalize()
    torch.testing.assert_close(small(x), before, rtol=0, atol=1e-12)
    assert type(small.gate) is left
    assert small.a.out_features == 6


class Alias(Twice):
    """Its gate has two names, and is called by the second."""

    def __init__(self, gate):
        super().__init__(gate)
        self.alias = gate

    def forward(self, x):
        return self.c(self.b(self.alias(self.a(x).relu())))


def test_a_gate_with_two_names_is_saved_and_leaves_under_both(tmp_path):
    model, x = Alias(dp.Gate(8)).double().eval(), torch.randn(4, 5).double()
    pruner = dp.Pruner(model, x, strength=1e-5)
    optimizer = optim.Adam(pruner.parameter_groups(lr=1e-3))
    model.gate.logits.data[[1, 4]] = -5.0
    pruner.remove_closed_(optimizer)
    dp.save_checkpoint(tmp_path / "run.ckpt", pruner, optimizer)
    other = dp.Pruner(Alias(dp.Gate(8)).double(), x, strength=1e-5)
    fresh = optim.Adam(other.parameter_groups(lr=1e-3))
    dp.load_checkpoint(tmp_path / "run.ckpt", other, fresh)
    small = other.finalize(fresh).eval()
    torch.testing.assert_close(small(x), model(x), rtol=0, atol=1e-12)
    assert type(small.gate) is type(small.alias) is nn.Identity
    dp.save_pruned(small, tmp_path / "small")
    plain = dp.load_pruned(Alias(dp.Gate(8)).double(), tmp_path / "small").eval()
    assert torch.equal(plain(x), small(x))


def test_a_budget_counts_a_gate_with_two_names():
    model, x = Alias(dp.Gate(8)), torch.randn(4, 5)
    pruner = dp.Pruner(model, x, budget=dp.Budget(macs=0.7, steps=4))
    assert pruner.controller is not None


class Idle(Twice):
    """It multiplies by the values of its gate, and does not call it."""

    def forward(self, x):
        return self.c(self.b(self.a(x).relu()) * self.gate.values())


class WithForward(Best):
    def values(self):
        return self.scores

    def forward(self, x):
        return x * self.values()


@pytest.mark.parametrize("model", [Idle(dp.Gate(8)), Alias(WithForward(8, 3))])
def test_a_gate_that_multiplies_nothing_is_named(model):
    with pytest.warns(UserWarning, match="gate `gate` is not called in the forward"):
        dp.Pruner(model, torch.randn(4, 5), strength=1e-5)


def test_a_gate_is_given_its_input_as_what_replaces_it_is():
    with pytest.raises(TypeError, match="positional-only"):
        dp.Gate(8)(x=torch.randn(4, 8))


class Tokens(nn.Module):
    """tokens -> fc -> relu -> gate on tokens -> fc -> over tokens, somehow."""

    def __init__(self, pool):
        super().__init__()
        self.first, self.gate = nn.Linear(6, 9), dp.Gate(7)
        self.second, self.pool = nn.Linear(9, 4), pool

    def forward(self, x):
        return self.pool(self.second(self.gate(self.first(x).relu())))


@pytest.mark.parametrize("pool", [nn.Identity(), lambda x: x.mean(1)])
def test_a_gate_on_tokens_is_not_folded_into_weights_of_their_features(pool):
    x = torch.randn(3, 7, 6, dtype=torch.float64)
    pruner = dp.Pruner(Tokens(pool).double().eval(), x, strength=1e-5)
    pruner.gates["gate"].logits.data[:5] += torch.tensor([-3.0, 0.1, 0.2, 0.3, 0.4])
    expected = pruner.model(x)
    small = pruner.finalize()
    torch.testing.assert_close(small(x), expected, rtol=0, atol=1e-10)
    assert type(small.gate) is Select


class Pair(nn.Module):
    """fc -> gate, twice from the same input; joined -> fc."""

    def __init__(self, join):
        super().__init__()
        self.a, self.gate1 = nn.Linear(6, 8), dp.Gate(8)
        self.b, self.gate2 = nn.Linear(6, 8), dp.Gate(8)
        self.join, self.head = join, nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.join(self.gate1(self.a(x)), self.gate2(self.b(x))))


@pytest.mark.parametrize(("join", "left"), [(torch.add, 6), (torch.mul, 2)])
@pytest.mark.parametrize("turn", [1, -1])
def test_gates_that_are_joined_close_units_of_their_own(join, left, turn):
    """A sum needs what either lets through, a product what both do."""
    x = torch.randn(4, 6, dtype=torch.float64)
    pruner = dp.Pruner(Pair(join).double(), x, strength=1e-5)
    closed = [range(4), range(2, 6)][::turn]
    for gate, units in zip(pruner.gates.values(), closed, strict=True):
        gate.logits.data[[*units]] -= 5.0
    expected = pruner.model.eval()(x)
    assert pruner.remove_closed_().units == {"gate1": left, "gate2": left}
    torch.testing.assert_close(pruner.finalize()(x), expected, rtol=0, atol=1e-10)

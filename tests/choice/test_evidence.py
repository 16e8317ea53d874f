import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffprune import find_groups
from diffprune._choice import listener as listener_module
from diffprune._choice.evidence import measure
from diffprune._choice.listener import by_example
from diffprune._choice.worth import order_units
from diffprune._surgery.compare import tensors
from zoo import ZOO, analysed


class TwoReaders(nn.Module):
    """A hidden layer that two layers read, one of them twice."""

    def __init__(self):
        super().__init__()
        self.make = nn.Linear(4, 6)
        self.one, self.two = nn.Linear(6, 3), nn.Linear(6, 3, bias=False)
        self.register_buffer("z", torch.ones(6))
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x):
        h = (F.gelu(self.make(x)) - self.mean) * self.z + self.mean
        return self.one(h).tanh() + self.two(h) * self.two(h).sigmoid()


def square(outputs, targets):
    return (outputs - targets).square().mean((1, 2)).mean()


def two_readers():
    torch.manual_seed(0)
    model = TwoReaders().double()
    x, y = torch.randn(12, 5, 4).double(), torch.randn(12, 5, 3).double()
    with torch.no_grad():
        model.mean = F.gelu(model.make(x)).flatten(0, 1).mean(0)
    return model, x, y


def gate_gradients(model, x, y):
    """By hand: the gradient of each example's loss with respect to a gate."""
    found = []
    for one, target in zip(x, y, strict=True):
        model.z = torch.ones(6, dtype=torch.float64, requires_grad=True)
        square(model(one[None]), target[None]).backward()
        found.append(model.z.grad)
    model.z = torch.ones(6).double()
    return torch.stack(found)


def effects(group):
    """What the evidence says of the same: sums over readers and positions."""
    return sum((r.activations * r.gradients).sum(1) for r in group.readers)


@pytest.mark.parametrize("batch", [12, 4])
def test_readers_together_give_the_gradient_of_a_gate_of_each_example(batch):
    model, x, y = two_readers()
    pairs = list(zip(x.split(batch), y.split(batch), strict=True))
    (group,) = measure(model, find_groups(model, x[:2]), pairs, square)
    assert len(group.readers) == 2
    torch.testing.assert_close(effects(group), gate_gradients(model, x, y))


def test_rows_are_summed_up_where_there_are_many_and_nothing_is_lost(monkeypatch):
    model, x, _ = two_readers()
    more = torch.randn(12, 30, 4).double(), torch.randn(12, 30, 3).double()
    groups = find_groups(model, x[:2])
    (short,) = measure(model, groups, [more], square)
    assert short.readers[0].activations.shape == (12, 6, 6)
    monkeypatch.setattr(
        listener_module._Tap, "_compressed", lambda _, x, u: (x, u, torch.ones(()))
    )
    (long,) = measure(model, groups, [more], square)
    assert long.readers[0].activations.shape == (12, 30, 6)
    one, other = order_units(short), order_units(long)
    assert torch.equal(one.order, other.order)
    torch.testing.assert_close(one.worth, other.worth)


def test_too_many_numbers_are_sampled(monkeypatch):
    model, x, y = two_readers()
    monkeypatch.setattr(listener_module, "_MOST_NUMBERS", 12 * 6 * 2)
    (group,) = measure(model, find_groups(model, x[:2]), [(x, y)], square)
    assert group.readers[0].activations.shape == (12, 2, 6)
    # Sampled rows stand for the others.
    whole = gate_gradients(model, x, y)
    assert effects(group).abs().mean() > 0.3 * whole.abs().mean()


def test_positions_of_a_unit_are_rows_where_rows_are_few():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(80, 2))
    x, y = torch.randn(8, 1, 6, 6), torch.randint(2, (8,))
    (group,) = measure(model, find_groups(model, x), [(x, y)], F.cross_entropy)
    assert group.readers[0].covariance.shape == (5, 5)
    # With many examples the reader tells the sixteen positions apart.
    many = torch.randn(400, 1, 6, 6), torch.randint(2, (400,))
    (group,) = measure(model, find_groups(model, x), [many], F.cross_entropy)
    assert group.readers[0].covariance.shape == (80, 80)


def test_the_model_is_left_as_it_was():
    model, x, y = two_readers()
    model.one.weight.requires_grad = False
    model.two.weight.grad = torch.ones(3, 6).double()
    model.train()
    state = copy.deepcopy(model.state_dict())
    measure(model, find_groups(model, x[:2]), [(x, y)], square)
    assert model.training
    assert not model.one.weight.requires_grad
    assert torch.equal(model.two.weight.grad, torch.ones(3, 6).double())
    assert model.make.weight.grad is None
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


def test_it_is_left_as_it_was_when_the_loss_fails():
    model, x, y = two_readers()

    def fail(*_):
        raise RuntimeError("no loss")

    with pytest.raises(RuntimeError, match="no loss"):
        measure(model, find_groups(model, x[:2]), [(x, y)], fail)
    assert all(p.requires_grad and p.grad is None for p in model.parameters())


class Slope(nn.Module):
    """Returns its derivative along a direction, too."""

    def __init__(self):
        super().__init__()
        self.make, self.read = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x):
        def run(x):
            return self.read(self.make(x).tanh())

        return run(x) + torch.func.jvp(run, (x,), (torch.ones_like(x),))[1]


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # jvp's own
def test_layers_inside_a_transformed_function_are_left_alone():
    torch.manual_seed(0)
    model, x = Slope().double(), torch.randn(12, 4).double()
    (group,) = measure(model, find_groups(model, x), [(x, None)], total)
    assert float(order_units(group).worth.min()) > 0


def test_batch_sizes_do_not_change_the_scale():
    model, x, y = two_readers()
    groups = find_groups(model, x[:2])
    (one,) = measure(model, groups, [(x, y)], square)
    (each,) = measure(
        model, groups, [(x[i : i + 1], y[i : i + 1]) for i in range(12)], square
    )
    torch.testing.assert_close(order_units(one).worth, order_units(each).worth)


class PickedReader(nn.Module):
    """A hidden layer that one layer reads as a whole, another for some of its rows."""

    def __init__(self, picked):
        super().__init__()
        self.make, self.picked = nn.Linear(4, 6), picked
        self.one, self.two = nn.Linear(6, 3), nn.Linear(6, 3, bias=False)

    def forward(self, x):
        h = F.gelu(self.make(x))
        added = torch.zeros_like(x[..., :3]).flatten(0, -2)
        added[self.picked] = self.two(h.flatten(0, -2)[self.picked])
        return self.one(h) + added.view_as(x[..., :3])


@pytest.mark.parametrize("rows", [59, 1, 0])
def test_what_a_reader_sees_of_no_example_in_particular_counts_by_the_pass(rows):
    torch.manual_seed(0)
    x, y = torch.randn(240, 5, 4).double(), torch.randn(240, 5, 3).double()
    model = PickedReader(torch.arange(60) < rows).double()
    pairs = list(zip(x.split(12), y.split(12), strict=True))
    (group,) = measure(model, find_groups(model, x[:12]), pairs, square)
    assert [len(reader.activations) for reader in group.readers] == [20, 20] or not rows
    model.picked = model.picked | True
    (whole,) = measure(model, find_groups(model, x[:12]), pairs, square)
    assert [len(reader.activations) for reader in whole.readers] == [240, 240]
    worth, reference = (order_units(one).worth.sum() for one in (group, whole))
    assert 0.3 < worth / reference < 3 or rows < 59
    assert worth > 0


def test_rows_of_nothing_change_nothing():
    """Batches of fewer positions, against the same with positions that do nothing."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 3)).double()
    long, short = torch.randn(5, 7, 4).double(), torch.randn(5, 2, 4).double()
    groups = find_groups(model, long)
    (both,) = measure(model, groups, [(short, None), (long, None)], total)
    (turned,) = measure(model, groups, [(long, None), (short, None)], total)
    torch.testing.assert_close(order_units(both).worth, order_units(turned).worth)
    (alone,) = measure(model, groups, [(long, None)], total)
    assert both.readers[0].activations.shape == (
        10,
        *alone.readers[0].gradients[0].shape,
    )


def test_rows_are_divided_among_examples():
    tensor = torch.arange(24.0).view(6, 4, 1)
    assert torch.equal(by_example(tensor, 6), tensor)
    assert by_example(tensor, 3).shape == (3, 8, 1)
    assert torch.equal(by_example(tensor, 4), tensor.transpose(0, 1))
    assert by_example(tensor, 5).shape == (1, 24, 1)
    assert by_example(torch.ones(6), 3).shape == (1, 1, 6)


def total(outputs, _):
    found = [out for out in tensors(outputs) if out.is_floating_point()]
    return sum(out.square().mean() for out in found)


# Gate gradients alone: the weights that read are computed, or a product of two units is
# what is read, so no linear map of single units is there to be watched.
PLAIN = {
    "bilinear",
    "weight_norm",
    "weight_norm_columns",
    "weight_norm_hooks",
    "einsum_dots",
    "other_names",
    "einsum_attention",
    "cosine_classifier",
    "two_towers",
    "diagonal_states",
    "prototypes",
    "ensemble",
    "gram",
    "tied_autoencoder",
    *(name for name in ZOO if name.startswith("torch_")),  # attention of torch itself
}


@pytest.mark.parametrize("name", ZOO)
def test_every_unit_of_every_model_has_a_worth(name):
    model, _, groups = analysed(name)
    batches = [(ZOO[name].inputs(), None) for _ in range(4)]
    found = (
        [order_units(one) for one in measure(model, groups, batches, total)]
        if len(groups)
        else []
    )
    for group, leaving in zip(groups, found, strict=True):
        assert sorted(leaving.order.tolist()) == list(range(group.size))
        assert bool(leaving.worth.isfinite().all())
        assert float(leaving.worth.max()) > 0
        assert leaving.is_compensated or name in PLAIN

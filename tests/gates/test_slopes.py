import copy

import pytest
import torch
from torch import nn

from diffprune import Gate, Pruner
from diffprune.gates.pooled import PooledGates
from diffprune.gates.slopes import PAST, Slopes

UNITS = {"a": 3, "b": 2}
G = torch.tensor([1.0, 2.0, 3.0, -4.0, 0.5])


def heard(*gradients, names=("a", "b")):
    slopes = Slopes(UNITS)
    for gradient in gradients:
        slopes.hear(names, gradient)
        slopes.end_step()
    return torch.cat([*slopes.squares().values()])


def test_a_step_is_in_proportion_to_the_squares_and_of_mean_one():
    torch.testing.assert_close(heard(G), (G**2 / (G**2).mean()).double())


@pytest.mark.parametrize("scale", [1e-6, 1024.0, -3.0])
def test_loss_scales_cancel_out(scale):
    torch.testing.assert_close(heard(G, scale * G.flip(0)), heard(G, G.flip(0)))


@pytest.mark.parametrize("broken", [torch.inf, torch.nan])
def test_a_step_that_is_not_finite_changes_no_ratio(broken):
    spoilt = G.clone()
    spoilt[1] = broken
    found, expected = heard(G, spoilt, G), heard(G, G)
    torch.testing.assert_close(found / found.sum(), expected / expected.sum())


def test_accumulated_gradients_count_alike():
    slopes = Slopes(UNITS)
    for gradient in (G, G.flip(0)):
        slopes.hear(("a", "b"), gradient)
    slopes.end_step()
    both = G**2 + G.flip(0) ** 2
    found = torch.cat([*slopes.squares().values()])
    torch.testing.assert_close(found, (both / both.mean()).double())


def test_the_past_fades():
    found = heard(G, G.flip(0))
    first, second = heard(G), heard(G.flip(0))
    torch.testing.assert_close(found, PAST * first + (1 - PAST) * second)


@pytest.mark.parametrize("is_resumed", [False, True])
def test_what_is_known_follows_the_model_to_another_precision(is_resumed):
    slopes = Slopes({"a": 5})
    slopes.hear(("a",), G.double() if is_resumed else G)
    slopes.end_step()
    if is_resumed:
        squares = slopes.squares()
        slopes.load_(squares)
        assert torch.equal(slopes.squares()["a"], squares["a"])
    slopes.hear(("a",), G.flip(0).double())
    slopes.end_step()
    torch.testing.assert_close(slopes.squares()["a"], heard(G, G.flip(0)))


def test_units_that_leave_are_forgotten_and_old_graphs_are_ignored():
    slopes = Slopes(UNITS)
    slopes.hear(("a", "b"), G)
    slopes.end_step()
    before = slopes.squares()
    keep = {"a": torch.tensor([True, False, True]), "b": torch.tensor([True, True])}
    slopes.keep_(keep)
    slopes.hear(("a", "b"), G)  # of a loss that was computed before the cut
    slopes.end_step()
    for name, squares in slopes.squares().items():
        assert torch.equal(squares, before[name][keep[name]])


def test_what_was_saved_goes_on_as_if_nothing_had_happened():
    slopes, other = Slopes(UNITS), Slopes(UNITS)
    slopes.hear(("a", "b"), G)
    slopes.end_step()
    other.load_(slopes.squares())
    for one in (slopes, other):
        one.hear(("a", "b"), G.flip(0))
        one.end_step()
    torch.testing.assert_close(other.squares(), slopes.squares())


@pytest.mark.parametrize("u", ["sigmoid", "softmax"])
def test_gates_are_heard_whether_they_are_pooled_or_not(u):
    gates = {"a": Gate(3, u=u), "b": Gate(2)}
    pooled = PooledGates(gates)
    values = pooled.values()
    (values["a"] @ G[:3] + values["b"] @ G[3:]).backward()
    pooled.slopes.end_step()
    found = torch.cat([*pooled.slopes.squares().values()])
    torch.testing.assert_close(found, (G**2 / (G**2).mean()).double())


def test_gates_that_users_placed_are_heard_too():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), Gate(6), nn.Linear(6, 2))
    x = torch.rand(5, 4)
    plain = copy.deepcopy(model)
    pruner = Pruner(model, x, strength=1e-4)
    optimizer = torch.optim.SGD(pruner.parameter_groups(lr=0.0))
    model(x).square().sum().backward()
    pruner.step(optimizer)
    values = plain[1].values().detach().requires_grad_()
    plain[2](plain[0](x) * values).square().sum().backward()
    squares = values.grad.square()
    torch.testing.assert_close(
        pruner._measuring.squares()["1"], (squares / squares.mean()).double()
    )
    assert "worth" in pruner.summary()

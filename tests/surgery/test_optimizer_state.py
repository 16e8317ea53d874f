"""Optimizers follow parameters that were cut, or are refused before anything moves."""

import pytest
import torch
from torch import nn, optim

from diffprune._surgery.optimizer_state import Move, check_can_follow, follow_
from diffprune.errors import ArgumentError

KEPT = (0, 2, 3)


@pytest.fixture
def move():
    old = nn.Parameter(torch.rand(5, 4))
    return Move(old, nn.Parameter(old.detach()[list(KEPT)]), {0: KEPT})


def stepped(optimizer):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = torch.rand_like(p)
    optimizer.step()
    return optimizer


def test_state_and_groups_follow(move):
    other = nn.Parameter(torch.rand(2))
    groups = [
        {"params": [other], "lr": 0.3},
        {"params": [move.old], "betas": (0.5, 0.6)},
    ]
    optimizer = stepped(optim.Adam(groups))
    before = dict(optimizer.state[move.old])
    follow_(optimizer, [move])
    assert optimizer.param_groups[0]["params"] == [other]
    assert optimizer.param_groups[1]["params"][0] is move.new
    assert optimizer.param_groups[1]["betas"] == (0.5, 0.6)
    assert move.old not in optimizer.state
    after = optimizer.state[move.new]
    assert after["step"] is before["step"]
    for key in ("exp_avg", "exp_avg_sq"):
        assert torch.equal(after[key], before[key][list(KEPT)])


def test_reduced_dimensions_are_left_alone(move):
    optimizer = optim.SGD([move.old], lr=1)
    rows, columns = torch.rand(5, 1), torch.rand(1, 4)
    optimizer.state[move.old] = {"rows": rows, "columns": columns, "count": 3}
    check_can_follow([optimizer], {"w": move.old})
    follow_(optimizer, [move])
    assert torch.equal(optimizer.state[move.new]["rows"], rows[list(KEPT)])
    assert torch.equal(optimizer.state[move.new]["columns"], columns)
    assert optimizer.state[move.new]["count"] == 3


def test_an_optimizer_that_has_not_stepped_follows(move):
    optimizer = optim.Adam([move.old])
    follow_(optimizer, [move])
    assert not optimizer.state
    stepped(optimizer)


@pytest.mark.parametrize(
    "odd", [torch.rand(20), torch.rand(5, 5), torch.rand(4, 5), [torch.rand(20)]]
)
def test_odd_state_is_refused(move, odd):
    optimizer = optim.SGD([move.old], lr=1)
    optimizer.state[move.old] = {"odd": odd}
    with pytest.raises(ArgumentError, match=r"SGD keeps `odd` of shape .* for `w`"):
        check_can_follow([optimizer], {"w": move.old})


def test_one_vector_for_all_parameters_is_refused():
    """L-BFGS keeps everything with its first parameter, be that cut or not."""
    parameters = [nn.Parameter(torch.rand(3)), nn.Parameter(torch.rand(5, 4))]
    optimizer = optim.LBFGS(parameters, max_iter=3)

    def loss():
        optimizer.zero_grad()
        value = sum(p.square().sum() for p in parameters)
        value.backward()
        return value

    optimizer.step(loss)
    with pytest.raises(ArgumentError, match=r"LBFGS keeps a list of its own"):
        check_can_follow([optimizer], {"w": parameters[1]})


@pytest.mark.parametrize("odd", [{"m": torch.rand(5, 4)}, torch.rand(5, 4)])
def test_what_is_remembered_by_name_is_refused_or_forgotten(move, odd):
    optimizer = optim.SGD([move.old], lr=1)
    optimizer.state.update({"w": odd, "seen": 3, "scale": {"by": torch.ones(1)}})
    with pytest.raises(ArgumentError, match=r"for 'w', which is no parameter"):
        check_can_follow([optimizer], {"w": move.old})
    check_can_follow([optimizer], {"w": move.old}, may_reset=True)
    follow_(optimizer, [move])
    assert list(optimizer.state) == ["seen", "scale"]
    check_can_follow([optimizer], {"w": move.new})


@pytest.mark.parametrize("kind", [torch.rand_like, lambda old: old])
def test_what_a_group_holds_beside_its_parameters_is_refused(move, kind):
    group = {"params": [move.old], "lr": torch.tensor(0.1), "slow": [kind(move.old)]}
    with pytest.raises(ArgumentError, match=r"`param_groups\[0\]\['slow'\]`.* `w`"):
        check_can_follow([optim.SGD([group])], {"w": move.old})


def test_parameters_that_nobody_holds_are_refused(move):
    with pytest.raises(ArgumentError, match=r"does not hold `layer.weight`"):
        check_can_follow([optim.SGD([nn.Parameter(torch.rand(1))], lr=1)],
                         {"layer.weight": move.old})  # fmt: skip


def test_frozen_parameters_need_no_optimizer(move):
    frozen = move.old.requires_grad_(requires_grad=False)
    check_can_follow([optim.SGD([nn.Parameter(torch.rand(1))], lr=1)], {"w": frozen})


def test_one_of_several_optimizers_is_enough(move):
    other = nn.Parameter(torch.rand(2))
    pair = [optim.SGD([other], lr=1), optim.Adam([move.old])]
    check_can_follow(pair, {"w": move.old})

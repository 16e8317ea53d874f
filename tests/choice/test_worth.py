import numpy as np
import pytest
import torch

from diffprune._choice.evidence import GroupEvidence
from diffprune._choice.listener import ReaderEvidence
from diffprune._choice.worth import RIDGE, order_units


def reader(units=6, each=1, examples=20, rows=5, seed=0):
    torch.manual_seed(seed)
    features = units * each
    mix = torch.randn(features, features).double()
    x = torch.randn(examples, rows, features).double() @ mix
    x = x - x.mean((0, 1))
    flat = x.flatten(0, 1)
    gradients = torch.randn(examples, rows, features).double()
    return ReaderEvidence(flat.T @ flat / len(flat), x, gradients)


def group(*readers, units=6):
    return GroupEvidence("group", units, readers, torch.zeros(units))


def effect_of(one, gone, each=1):
    """What each example's loss becomes, to first order, when the rest refits itself.

    By brute force: what is left explains each feature that is gone, by ridge
    regression, and what it cannot explain is lost.
    """
    covariance = one.covariance.numpy()
    ridge = RIDGE * np.diag(covariance).mean()
    features = [k * each + e for k in gone for e in range(each)]
    left = [f for f in range(len(covariance)) if f not in features]
    inner = covariance[np.ix_(left, left)] + ridge * np.eye(len(left))
    shares = np.linalg.solve(inner, covariance[np.ix_(left, features)])
    x, u = one.activations.numpy(), one.gradients.numpy()
    lost = x[..., features] - x[..., left] @ shares
    return (lost * u[..., features]).sum((1, 2))


@pytest.mark.parametrize("each", [1, 3])
def test_every_step_is_the_best_by_brute_force(each):
    one, other = reader(each=each), reader(each=each, rows=2, seed=1)
    found = order_units(group(one, other))
    gone = []
    for unit, worth in zip(
        found.order.tolist()[:-1], found.worth.tolist(), strict=False
    ):
        scores = {
            k: np.mean(
                sum(
                    effect_of(r, [*gone, k], each) - effect_of(r, gone, each)
                    for r in (one, other)
                )
                ** 2
            )
            for k in range(6)
            if k not in gone
        }
        assert unit == min(scores, key=scores.get)
        assert worth == pytest.approx(scores[unit], rel=1e-6)
        gone.append(unit)


def test_of_two_equal_units_one_leaves_for_nothing_and_the_other_does_not():
    torch.manual_seed(0)
    x = torch.randn(50, 4, 5).double()
    x[..., 3] = x[..., 1]
    x = x - x.mean((0, 1))
    flat = x.flatten(0, 1)
    u = torch.randn(50, 4, 5).double()
    seen = ReaderEvidence(flat.T @ flat / len(flat), x, u)
    found = order_units(group(seen, units=5))
    assert int(found.order[0]) in {1, 3}
    assert found.worth[0] < 1e-3 * found.worth[1]


def test_a_constant_unit_is_worth_nothing():
    one = reader()
    one.activations[..., 2] = 0
    one.covariance[2] = one.covariance[:, 2] = 0
    found = order_units(group(one))
    assert int(found.order[0]) == 2
    assert float(found.worth[0]) == 0


def test_without_readers_gates_decide():
    squares = torch.tensor([3.0, 1.0, 2.0])
    found = order_units(GroupEvidence("group", 3, (), squares))
    assert found.order.tolist() == [1, 2, 0]
    assert not found.is_compensated
    assert found.scores().tolist() == [3.0, 1.0, 2.0]


def test_keep_says_which_units_are_left():
    found = order_units(GroupEvidence("group", 3, (), torch.tensor([3.0, 1.0, 2.0])))
    assert found.keep(3).tolist() == [True] * 3
    assert found.keep(1).tolist() == [True, False, False]


def test_wide_groups_lose_several_units_at_a_time_and_all_of_them_once():
    found = order_units(group(reader(units=300, rows=2, examples=8), units=300))
    assert sorted(found.order.tolist()) == list(range(300))
    assert bool(found.worth.isfinite().all())

import pytest
import torch

from diffprune._choice.allocation import Costs, allocate, uniform_part
from diffprune._choice.worth import Leaving


def leaving(*worths):
    return [
        Leaving(str(n), torch.arange(len(w)), torch.tensor(w), is_compensated=True)
        for n, w in enumerate(worths)
    ]


def area(most):
    """Two groups whose widths are multiplied."""

    def marginal(widths, _):
        return torch.stack([widths[1], widths[0]]) / most

    return Costs(lambda widths: [float(widths[0] * widths[1]) / most], marginal)


def line(*prices, most):
    cost = torch.tensor(prices).double()
    return Costs(
        lambda widths: [float(widths.double() @ cost) / most], lambda *_: cost / most
    )


def test_the_least_worth_per_cost_leaves_first():
    groups = leaving([1.0] * 10, [1.5] * 10)
    assert allocate(groups, line(1, 1, most=15), floor=0.0) == [5, 10]
    assert allocate(groups, line(1, 2, most=25), floor=0.0) == [10, 7]


def test_no_group_becomes_much_narrower_than_all_alike():
    groups = leaving([0.0] * 100, [1.0] * 100)
    assert uniform_part([100, 100], area(2500)) == pytest.approx(0.5)
    assert allocate(groups, area(2500), floor=0.6) == [30, 83]
    assert allocate(groups, area(2500), floor=0.0) == [25, 100]


def test_floors_give_way_to_limits():
    # Each alone would do, but one is bounded by the least units of the other.
    groups = leaving([0.0] * 4, [1.0] * 100)
    assert allocate(groups, line(10, 1, most=30), floor=1.0, least=2)[0] == 2


def test_what_still_fits_comes_back():
    groups = leaving([0.0] * 4, [1.0] * 40)
    # A unit of the first is worth four of the second: they come back into the rest.
    costs = line(4, 1, most=46)
    widths = allocate(groups, costs, floor=0.0, least=1)
    assert costs.used(torch.tensor(widths))[0] <= 1
    assert 4 * widths[0] + widths[1] > 46 - 4


@pytest.mark.parametrize("round_to", [4, 8])
def test_widths_are_multiples(round_to):
    groups = leaving([0.1 * n for n in range(30)], [1.0] * 41)
    widths = allocate(groups, line(1, 1, most=40), round_to=round_to)
    assert all(
        w % round_to == 0 or w == size for w, size in zip(widths, (30, 41), strict=True)
    )
    assert sum(widths) <= 40


def test_widths_are_multiples_where_one_more_leaves_for_others():
    # The first two of ten leave to make it eight: were two more to leave, it was six.
    groups = leaving([3.0] * 10, [1.0] * 9)
    assert allocate(groups, line(2, 1, most=22), round_to=4) == [8, 4]


def test_nothing_leaves_when_all_fits():
    assert allocate(leaving([1.0] * 5, [1.0] * 6), area(30)) == [5, 6]


def test_limits_that_cannot_be_met_end_at_the_least():
    assert allocate(leaving([1.0] * 5, [1.0] * 6), area(1), least=2) == [2, 2]


def test_one_more_leaves_where_others_then_use_what_was_left_over():
    groups = leaving([0.0, 9.0], [0.2, 0.3, 9.0])
    costs = line(5, 3, most=13)
    # Without the first of the first group the rest would cost 14, or 11.
    assert allocate(groups, costs, floor=0.0, least=1) == [2, 1]


def test_nothing_comes_back_twice():
    groups = leaving([float(n) for n in range(8)], [0.1 * n for n in range(30)])
    costs = line(7, 2, most=60)
    widths = allocate(groups, costs, floor=0.0, least=1)
    assert widths[0] <= 8
    assert widths[1] <= 30
    assert 1 >= max(costs.used(torch.tensor(widths))) > 0.98


def test_floors_are_parts_of_what_there_was_at_first():
    groups = leaving([0.0] * 40, [1.0] * 100)
    assert allocate(groups, area(2500), floor=0.6, whole=[100, 100]) == [30, 83]
    assert allocate(groups, area(2500), floor=0.6)[0] < 30


def test_every_group_has_a_least_of_its_own():
    groups = leaving([1.0] * 5, [1.0] * 6)
    assert allocate(groups, area(1), least=[3, 1]) == [3, 1]

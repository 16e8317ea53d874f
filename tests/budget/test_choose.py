import pytest
import torch
from hypothesis import given, strategies as st

from diffprune._budget.choose import choose


def within(most, prices):
    prices = torch.tensor(prices, dtype=torch.float64)
    return lambda widths: float(widths @ prices) / most


sizes = st.lists(st.integers(2, 8), min_size=1, max_size=4)


@given(sizes, st.integers(0, 2**16), st.floats(0.0, 1.0))
def test_what_is_chosen_fits_and_nothing_more_would(sizes, seed, part):
    generator = torch.Generator().manual_seed(seed)
    scores = [torch.randn(n, generator=generator) for n in sizes]
    prices = torch.randint(1, 9, (len(sizes),), generator=generator).tolist()
    least = sum(price for price in prices)
    whole = sum(price * n for price, n in zip(prices, sizes, strict=True))
    most = least + part * (whole - least)
    kept = choose(scores, [1] * len(sizes), within(most, prices))
    cost = sum(p * int(units.sum()) for p, units in zip(prices, kept, strict=True))
    assert cost <= most
    for price, units in zip(prices, kept, strict=True):
        assert units.any()
        assert units.all() or cost + price > most


@given(sizes, st.integers(0, 2**16), st.floats(0.0, 1.0))
def test_of_one_group_the_best_stay(sizes, seed, part):
    generator = torch.Generator().manual_seed(seed)
    scores = [torch.randn(n, generator=generator) for n in sizes]
    most = len(sizes) + part * (sum(sizes) - len(sizes))
    kept = choose(scores, [1] * len(sizes), within(most, [1.0] * len(sizes)))
    for score, units in zip(scores, kept, strict=True):
        assert units.all() or score[units].min() >= score[~units].max()


def test_room_left_by_an_expensive_unit_is_filled_with_cheap_ones():
    scores = [torch.tensor([3.0, 1.0]), torch.tensor([0.1, 0.2, 0.3, 4.0])]
    expensive, cheap = choose(scores, [1, 1], within(13.0, [10.0, 1.0]))
    assert expensive.tolist() == [True, False]
    assert cheap.tolist() == [False, True, True, True]


@pytest.mark.parametrize("floors", [[2, 3], [1, 4], [2, 4]])
def test_floors_hold_whatever_the_scores(floors):
    scores = [torch.zeros(2), torch.tensor([-torch.inf] * 4)]
    kept = choose(scores, floors, lambda widths: float(widths.sum()) / sum(floors))
    assert [int(units.sum()) for units in kept] == floors


def test_one_more_may_leave_to_waste_less():
    scores = [torch.tensor([0.1, 2.0]), torch.tensor([0.2, 0.3, 9.0])]
    used = within(13.0, [5.0, 3.0])
    wasteful = choose(scores, [1, 1], used)
    thrifty = choose(scores, [1, 1], used, waste=0.1)
    assert [int(units.sum()) for units in wasteful] == [1, 2]  # costs 11
    assert [int(units.sum()) for units in thrifty] == [2, 1]  # costs 13

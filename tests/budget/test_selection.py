import pytest
import torch
from hypothesis import given, strategies as st

from diffprune import Gate
from diffprune._budget.limits import Limit
from diffprune._budget.selection import UnitSelection, choose
from diffprune._costs.polynomial import Polynomial


def selection(*logits, round_to=1, read=dict, sizes=None):
    """Gates with these logits and a threshold of one half."""
    gates = {}
    for number, values in enumerate(logits):
        gate = Gate(len(values), min_open=1)
        with torch.no_grad():
            gate.logits.copy_(torch.tensor(values))
            gate.threshold.fill_(0.5)
        gates[str(number)] = gate
    full = torch.tensor(sizes or [len(values) for values in logits]).double()
    return UnitSelection(gates, full, round_to, read), gates


def at_most(number):
    """A limit on the sum of two widths."""
    cost = Polynomial({(0,): 1, (1,): 1}, 2)
    return Limit("units", number, cost, 10.0, float(number))


def test_widths_count_what_is_open_and_rounding_what_it_comes_to():
    both, _ = selection([-1.0, 1.0, 1.0], [1.0, -1.0, 1.0, 1.0, -1.0], round_to=4)
    assert both.widths().tolist() == [2, 3]
    assert both.rounded().tolist() == [3, 4]
    assert both.least().tolist() == [3, 4]


def test_a_unit_is_worth_more_where_few_are_left():
    both, _ = selection([0.5, 0.4], [0.5, 0.4], sizes=[2, 20])
    worth = both.worth()
    torch.testing.assert_close(worth["1"], 10 * worth["0"])
    (kept,) = [both.target_set(worth, [at_most(3)], {})]
    assert [int(units.sum()) for units in kept.values()] == [1, 2]


def test_closed_units_are_not_worth_more():
    both, _ = selection([-0.5, 0.4], [0.5, 0.4], sizes=[20, 20])
    assert both.worth()["0"][0] == pytest.approx(-0.5)


def test_what_nobody_reads_makes_room_for_others():
    def read(keep):
        """Without the first unit of the first gate nobody reads two of the second."""
        everything = torch.ones(4, dtype=torch.bool)
        pair = torch.tensor([True, True, False, False])
        seen = everything if keep["0"][0] else pair
        return {"0": keep["0"], "1": keep["1"] & seen}

    both, _ = selection([0.1, 0.9, 0.9], [0.2, 0.3, 0.8, 0.7], read=read)
    kept = both.target_set(both.worth(), [at_most(4)], {})
    assert kept["0"].tolist() == [False, True, True]
    assert kept["1"].tolist() == [True, True, False, False]


def test_units_are_opened_and_closed_by_hand():
    both, gates = selection([0.1, 0.9], [0.2, -0.3])
    keep = {"0": torch.tensor([True, False]), "1": torch.tensor([False, True])}
    both.set_(keep)
    assert {name: gate.is_open().tolist() for name, gate in gates.items()} == {
        name: units.tolist() for name, units in keep.items()
    }


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

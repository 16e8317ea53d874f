import pytest
import torch

from diffprune import Gate
from diffprune._budget.limits import Limit
from diffprune._budget.selection import Crowd
from diffprune._costs.polynomial import Polynomial


def crowd(*logits, round_to=1, unread=dict, sizes=None):
    """Gates with these logits and a threshold of one half."""
    gates = {}
    for number, values in enumerate(logits):
        gate = Gate(len(values), min_open=1)
        with torch.no_grad():
            gate.logits.copy_(torch.tensor(values))
            gate.threshold.fill_(0.5)
        gates[str(number)] = gate
    full = torch.tensor(sizes or [len(values) for values in logits]).double()
    return Crowd(gates, full, round_to, unread), gates


def at_most(number):
    """A limit on the sum of two widths."""
    cost = Polynomial({(0,): 1, (1,): 1}, 2)
    return Limit("units", number, cost, 10.0, float(number))


def test_widths_count_what_is_open_and_rounding_what_it_comes_to():
    both, _ = crowd([-1.0, 1.0, 1.0], [1.0, -1.0, 1.0, 1.0, -1.0], round_to=4)
    assert both.widths().tolist() == [2, 3]
    assert both.rounded().tolist() == [3, 4]
    assert both.least().tolist() == [3, 4]


def test_a_unit_is_worth_more_where_few_are_left():
    both, _ = crowd([0.5, 0.4], [0.5, 0.4], sizes=[2, 20])
    worth = both.worth()
    torch.testing.assert_close(worth["1"], 10 * worth["0"])
    (kept,) = [both.landing(worth, [at_most(3)], {})]
    assert [int(units.sum()) for units in kept.values()] == [1, 2]


def test_closed_units_are_not_worth_more():
    both, _ = crowd([-0.5, 0.4], [0.5, 0.4], sizes=[20, 20])
    assert both.worth()["0"][0] == pytest.approx(-0.5)


def test_what_nobody_reads_makes_room_for_others():
    def unread(closed):
        """Without the first unit of the first gate nobody reads two of the second."""
        none = torch.zeros(4, dtype=torch.bool)
        pair = torch.tensor([False, False, True, True])
        return {"0": closed["0"], "1": closed["1"] | (pair if closed["0"][0] else none)}

    both, _ = crowd([0.1, 0.9, 0.9], [0.2, 0.3, 0.8, 0.7], unread=unread)
    kept = both.landing(both.worth(), [at_most(4)], {})
    assert kept["0"].tolist() == [False, True, True]
    assert kept["1"].tolist() == [True, True, False, False]


def test_setting_says_what_was_closed():
    both, gates = crowd([0.1, 0.9], [0.2, -0.3])
    kept = {"0": torch.tensor([True, False]), "1": torch.tensor([False, True])}
    closed = both.set_(kept)
    assert {name: gate.is_open().tolist() for name, gate in gates.items()} == {
        name: units.tolist() for name, units in kept.items()
    }
    assert closed["0"].tolist() == [False, True]

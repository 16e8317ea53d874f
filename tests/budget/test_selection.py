import torch

from diffprune import Gate
from diffprune._budget.limits import Limit
from diffprune._budget.selection import UnitSelection
from diffprune._choice import Leaving
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


def worth(*groups):
    """Orders of units that are worth these numbers."""
    found = {}
    for number, values in enumerate(groups):
        least, order = torch.tensor(values).double().sort(stable=True)
        found[str(number)] = Leaving(str(number), order, least, is_compensated=True)
    return found


def at_most(number):
    """A limit on the sum of two widths."""
    cost = Polynomial({(0,): 1, (1,): 1}, 2)
    return Limit("units", number, cost, 10.0, float(number))


def widths(kept):
    return [int(units.sum()) for units in kept.values()]


def test_widths_count_what_is_open_and_rounding_what_it_comes_to():
    both, _ = selection([-1.0, 1.0, 1.0], [1.0, -1.0, 1.0, 1.0, -1.0], round_to=4)
    assert both.widths().tolist() == [2, 3]
    assert both.rounded().tolist() == [3, 4]
    assert both.least().tolist() == [3, 4]


def test_the_least_worth_leaves_whatever_gates_say():
    both, _ = selection([0.9, 0.1, 0.9, 0.1], [0.1, 0.9, 0.9, 0.9])
    orders = worth([1.0, 5.0, 2.0, 7.0], [8.0, 3.0, 9.0, 4.0])
    kept = both.fitting(orders, [at_most(5)])
    assert kept["0"].tolist() == [False, True, False, True]
    assert kept["1"].tolist() == [True, False, True, True]


def test_where_nothing_is_known_gates_shrink_alike():
    both, _ = selection([0.5] * 20, [0.5] * 10)
    kept = both.fitting(worth([0.0] * 20, [0.0] * 10), [at_most(15)])
    assert widths(kept) == [10, 5]


def test_no_gate_becomes_much_narrower_than_all_alike_were_at_first():
    both, _ = selection([0.5] * 20, [0.5] * 12, sizes=[20, 40])
    orders = worth([9.0] * 20, [1.0] * 12)
    # Half of all units: 0.6 * 20 of the second would stay, and it has only 12.
    assert widths(both.fitting(orders, [at_most(30)])) == [18, 12]


def test_what_nobody_reads_makes_room_for_others():
    def read(keep):
        """Without the first unit of the first gate nobody reads two of the second."""
        everything = torch.ones(4, dtype=torch.bool)
        pair = torch.tensor([True, True, False, False])
        seen = everything if keep["0"][0] else pair
        return {"0": keep["0"], "1": keep["1"] & seen}

    both, _ = selection([0.1, 0.9, 0.9], [0.2, 0.3, 0.8, 0.7], read=read)
    orders = worth([0.1, 0.9, 0.9], [0.2, 0.3, 0.8, 0.7])
    kept = both.fitting(orders, [at_most(4)])
    assert kept["0"].tolist() == [False, True, True]
    assert kept["1"].tolist() == [True, True, False, False]


def test_on_the_way_no_gate_falls_below_what_it_is_to_keep():
    both, _ = selection([0.5] * 10, [0.5] * 10)
    orders = worth([1.0] * 10, [9.0] * 10)
    target = {
        "0": torch.arange(10) < 8,
        "1": torch.arange(10) < 2,
    }
    assert widths(both.between(orders, [at_most(12)], target)) == [8, 4]


def test_as_many_as_were_known_to_fit_stay_if_nothing_uses_more():
    # A unit of the first costs five of the second, and one has gone already.
    cost = Polynomial({(0,): 5, (1,): 1}, 2)
    limit = Limit("units", 12.0, cost, 20.0, 12.0)
    both, _ = selection([0.5] * 2, [0.5] * 2)
    orders = worth([0.1, 0.2], [5.0, 6.0])
    fits = {"0": torch.tensor([True, True]), "1": torch.tensor([True, True])}
    assert widths(both.fitting(orders, [limit], fits)) == [2, 2]


def test_units_are_opened_and_closed_by_hand():
    both, gates = selection([0.1, 0.9], [0.2, -0.3])
    keep = {"0": torch.tensor([True, False]), "1": torch.tensor([False, True])}
    both.set_(keep)
    assert {name: gate.is_open().tolist() for name, gate in gates.items()} == {
        name: units.tolist() for name, units in keep.items()
    }

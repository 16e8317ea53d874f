import pytest
import torch
from torch import nn

from diffprune._budget import Budget, Controller
from diffprune._budget.controller import Tick
from diffprune._budget.limits import Measured
from diffprune._choice import Leaving
from diffprune._costs.network import Network
from diffprune._graph import find_groups
from diffprune.errors import ArgumentError
from diffprune.gates import Gate

SIZES = {"0": 60, "2": 40}


@pytest.fixture(scope="module")
def network():
    """8 -> fc 60 -> fc 40 -> fc 4: a unit costs 48 multiply-adds at first, or 64."""
    first, second = SIZES.values()
    model = nn.Sequential(
        nn.Linear(8, first), nn.ReLU(), nn.Linear(first, second), nn.ReLU()
    ).append(nn.Linear(second, 4))
    x = torch.rand(1, 8)
    groups = find_groups(model, x)
    return Network(model, x, groups, tuple(groups))


@pytest.fixture
def gates():
    return {name: Gate(size) for name, size in SIZES.items()}


def by_logits(gates):
    """Units are worth what their logits say, the least one nothing."""

    def order(name, gate):
        worth, order = gate.logits.detach().double().sort()
        return Leaving(name, order, worth - worth[0], is_compensated=False)

    return lambda: {name: order(name, gate) for name, gate in gates.items()}


def make(budgets, network, gates, **options):
    return Controller(budgets, network, gates, by_logits(gates), **options)


def remove_(controller, gates, keep):
    """What a pruner does with what is to stay."""
    for name, units in keep.items():
        assert not gates[name].is_open()[~units].any()
        gates[name].keep_(units)
    controller.after_removal_()


def follow(controller, gates, steps, drift=0.0, start=0):
    """Run a plan while all logits drift; yields the costs, relative to the limits."""
    for step in range(start + 1, start + steps + 1):
        for gate in gates.values() if controller.phase == "closing" else ():
            gate.logits.data += drift * torch.rand(gate.size)
        tick = controller.tick(step) if controller.is_due(step) else Tick()
        if tick.keep is not None:
            remove_(controller, gates, tick.keep)
        yield step, tick, [lim.used(controller.widths()) for lim in controller.limits]


DRIFTS = {"none": 0.0, "slow": -0.002, "fast": -0.2, "upwards": 0.1}


@pytest.mark.parametrize("drift", DRIFTS.values(), ids=DRIFTS)
@pytest.mark.parametrize("macs", [0.9, 0.2, 0.05])
@pytest.mark.parametrize("steps", [10, 40])
def test_budgets_are_met_however_gates_move(network, gates, macs, steps, drift):
    controller = make([Budget(macs=macs, steps=steps)], network, gates)
    *_, (_, _, (used,)) = follow(controller, gates, steps, drift)
    assert 0.97 <= used <= 1
    assert controller.phase == "met"


def test_the_structure_is_whole_at_first_and_settled_by_half(network, gates):
    controller = make([Budget(macs=0.2, steps=100)], network, gates)
    found = {step: used for step, _, (used,) in follow(controller, gates, 100, -0.01)}
    assert all(found[step] == 5.0 for step in range(1, 10))
    assert all(found[step] == found[50] for step in range(50, 101))
    assert sorted(found.values(), reverse=True) == list(found.values())


def test_several_limits_hold_at_once(network, gates):
    budget = Budget(macs=0.3, parameters=0.25, memory=0.9, steps=50)
    controller = make([budget], network, gates)
    *_, (_, _, used) = follow(controller, gates, 50, -0.01)
    assert 0.97 <= max(used) <= 1


def test_budgets_are_met_in_turn(network, gates):
    budgets = [Budget(macs=part, steps=40) for part in (0.5, 0.3, 0.1)]
    controller = make(budgets, network, gates)
    met = {}
    for step, tick, _ in follow(controller, gates, 120, -0.01):
        if tick.met is not None:
            (limit,) = controller._limits[budgets.index(tick.met)]
            met[step] = limit.used(controller.widths())
    assert list(met) == [40, 80, 120]
    assert all(0.97 <= used <= 1 for used in met.values())


def test_widths_are_multiples_where_asked(network, gates):
    controller = make([Budget(macs=0.3, steps=50)], network, gates, round_to=4)
    *_, (_, _, (used,)) = follow(controller, gates, 50, -0.01)
    assert used <= 1
    assert all(int(width) % 4 == 0 for width in controller.widths())


def test_units_that_are_worth_more_stay(network, gates):
    for gate in gates.values():
        gate.logits.data[::2] += 0.5
        gate.keep_(torch.ones(gate.size, dtype=torch.bool))
    marked = {name: gate.logits.detach().clone() for name, gate in gates.items()}
    controller = make([Budget(macs=0.3, steps=50)], network, gates)
    for _ in follow(controller, gates, 50):
        pass
    for name, gate in gates.items():
        kept = torch.isin(marked[name], gate.logits.detach())
        assert marked[name][kept].min() >= marked[name][~kept].max()


@pytest.mark.parametrize("steps", [0, 5, 30, 70])
def test_a_run_that_ends_early_meets_its_budget_too(network, gates, steps):
    controller = make([Budget(macs=0.1, steps=100)], network, gates)
    for _ in follow(controller, gates, steps):
        pass
    tick = controller.finish()
    if tick.keep is not None:
        remove_(controller, gates, tick.keep)
        tick = controller.finish()
    assert 0.97 <= controller.limits[0].used(controller.widths()) <= 1
    assert (tick.met, controller.phase) == (controller.budgets[0], "met")
    assert controller.finish() == Tick()


@pytest.mark.parametrize("when", [3, 25, 70])
def test_a_state_continues_where_it_was(network, gates, when):
    budget = Budget(macs=0.2, steps=100)
    controller = make([budget], network, gates)
    for _ in follow(controller, gates, when):
        pass
    copies = {name: Gate(gate.size) for name, gate in gates.items()}
    fresh = make([budget], network, copies)
    for name, gate in gates.items():
        copies[name].load_state_dict(gate.state_dict())
    fresh.load_state_dict(controller.state_dict())
    for _ in zip(
        follow(controller, gates, 100 - when, start=when),
        follow(fresh, copies, 100 - when, start=when),
        strict=True,
    ):
        assert controller.state_dict() == fresh.state_dict()
    for name, gate in gates.items():
        assert torch.equal(gate.logits, copies[name].logits)


def test_floors_are_respected_in_what_is_promised(network):
    gates = {name: Gate(size, min_open=10) for name, size in SIZES.items()}
    with pytest.raises(ArgumentError, match=r"macs=0.05 cannot be met.* 10 units per"):
        make([Budget(macs=0.05, steps=100)], network, gates)


def test_a_state_of_other_budgets_is_refused(network, gates):
    state = make([Budget(macs=0.5, steps=100)], network, gates).state_dict()
    other = make([Budget(macs=0.4, steps=100)], network, gates)
    with pytest.raises(ArgumentError, match=r"on its way to .*0.5.*asked for .*0.4"):
        other.load_state_dict(state)


DAMAGES = {
    "no stage": {"stage": None},
    "a stage too many": {"stage": 1},
    "another phase": {"phase": "sleeping"},
    "text for steps": {"start": "3"},
    "no costs": {"begin": None},
    "text for a cost": {"begin": ["much"]},
    "text for units": {"target": {"0": "all"}},
    "too few factors": {"factors": []},
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_state_is_refused_and_changes_nothing(network, gates, damage):
    controller = make([Budget(macs=0.2, steps=100)], network, gates)
    for _ in follow(controller, gates, 20):
        pass
    before = controller.state_dict()
    with pytest.raises(ArgumentError, match="damaged"):
        controller.load_state_dict(before | damage)
    assert controller.state_dict() == before


def test_the_report_says_what_was_asked_and_what_is_used(network, gates):
    controller = make([Budget(macs=0.5, parameters=2000, steps=100)], network, gates)
    assert controller.report() == [
        "macs=0.5: 3,040 of 1,520 allowed (warm-up)",
        "parameters=2000: 3,144 of 2,000 allowed (warm-up)",
    ]


@pytest.mark.parametrize("macs", [0.6, 0.35, 0.2])
def test_of_what_was_tried_the_fullest_that_fits_is_kept(network, gates, macs):
    """A machine on which widths cost what the next multiple of five does, and more."""
    whole, seen = 60 * 8 + 60 * 40 + 40 * 4, []

    def cost(kept):
        first, second = (-(-int(units.sum()) // 5) * 5 for units in kept.values())
        return 1.1 * (first * 8 + first * second + second * 4)

    def measure(keep):
        seen.append(cost(keep))
        return {"macs": Measured(seen[-1], whole)}

    budget = Budget(macs=macs, steps=50)
    controller = make([budget], network, gates, measure=measure)
    *_, _ = follow(controller, gates, 50, -0.01)
    found = cost({name: gate.is_open() for name, gate in gates.items()})
    tried = [one for one in seen[-7:] if one <= macs * whole]  # and once when settled
    assert found == max(tried)
    assert 0.85 <= found / (macs * whole) <= 1
    assert controller.used()["macs"] == pytest.approx(found / (macs * whole))

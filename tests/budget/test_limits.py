from dataclasses import replace

import pytest
import torch
from torch import nn

from diffprune._budget import Budget
from diffprune._budget.limits import Measured, check_reachable, make_limits, marginal
from diffprune._costs.network import Network
from diffprune._graph import find_groups
from diffprune.errors import ArgumentError


@pytest.fixture
def network():
    """4 -> fc 6 -> fc 10 -> fc 2, for one input."""
    model = nn.Sequential(
        nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 2)
    )
    x = torch.rand(1, 4)
    groups = find_groups(model, x)
    return Network(model, x, groups, tuple(groups))


def test_amounts_are_of_the_whole_model(network):
    ((macs, params),) = make_limits([Budget(macs=0.5, parameters=30)], network)
    assert (macs.whole, macs.most) == (104, 52)
    assert (params.whole, params.most) == (30 + 70 + 22, 30)


@pytest.mark.parametrize("batch", [1, 8])
def test_multiply_adds_and_memory_are_per_example(batch):
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    x = torch.rand(batch, 4)
    groups = find_groups(model, x)
    network = Network(model, x, groups, tuple(groups))
    ((macs, memory),) = make_limits([Budget(macs=30, memory="20 B")], network)
    assert (macs.whole, macs.most) == (36, 30)
    assert (memory.whole, memory.most) == (4 * (6 + 2), 20)


def test_a_number_per_example_needs_a_number_of_examples():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.other = nn.Linear(4, 6), nn.Linear(6, 2)

        def forward(self, x, y):
            return self.other(self.one(x)).sum() + y.sum()

    x = torch.rand(3, 4), torch.rand(5)
    groups = find_groups(Sum(), x)
    network = Network(Sum(), x, groups, tuple(groups))
    with pytest.raises(ArgumentError, match=r"macs=30 is per example.*\n.*`macs=0.3`"):
        make_limits([Budget(macs=30)], network)
    assert make_limits([Budget(macs=0.5, parameters=30)], network)


@pytest.mark.parametrize("asked", [0.5, 50])
def test_what_a_model_does_not_cost_cannot_be_limited(asked):
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.scale = nn.Embedding(5, 6), nn.Parameter(torch.ones(6))

        def forward(self, x):
            return (self.table(x) * self.scale).sum(-1)

    x = torch.tensor([1, 2])
    groups = find_groups(Product(), x)
    network = Network(Product(), x, groups, tuple(groups))
    with pytest.raises(ArgumentError, match="no macs that could be limited"):
        make_limits([Budget(macs=asked)], network)


def test_a_tiny_share_of_the_latency_may_have_been_meant_in_seconds(network):
    ((macs,),) = make_limits([Budget(macs=0.005)], network)
    limit = replace(macs, name="latency")
    with pytest.raises(ArgumentError, match=r'for a time, type `latency="5 ms"`'):
        check_reachable([limit], torch.tensor([2.0, 2.0]))


def test_a_cost_is_worked_out_once_for_all_budgets(network):
    (one,), (other,) = make_limits([Budget(macs=0.5), Budget(macs=0.2)], network)
    assert one.predicted is other.predicted


def test_the_plan_goes_down_in_equal_ratios(network):
    ((limit,),) = make_limits([Budget(macs=0.25)], network)
    planned = [limit.at(progress, 104.0) for progress in (0.0, 0.5, 1.0)]
    assert planned == [104.0, 52.0, 26.0]


def test_a_plan_that_has_arrived_stays(network):
    ((limit,),) = make_limits([Budget(macs=0.5)], network)
    assert limit.at(0.5, 10.0) == 10.0


@pytest.mark.parametrize(
    ("asked", "cost"),
    [(0.5, 104 * 0.8), (50.0, 40.0)],
    ids=["a part counts", "an amount counts"],
)
def test_a_whole_that_costs_less_today(network, asked, cost):
    """The whole costs 50 where 104 were predicted, and these widths 40."""
    ((limit,),) = make_limits([Budget(macs=asked)], network)
    widths = torch.tensor([3.0, 10.0])
    exact = limit.measured(widths, Measured(cost=40.0, whole=50.0))
    assert float(exact.cost(widths)) == pytest.approx(cost)
    between = float(limit.halfway(exact).cost(widths))
    assert between == pytest.approx((cost * float(limit.cost(widths))) ** 0.5)
    assert limit.measured(widths, None) == limit


def test_what_cannot_be_met_is_refused_with_the_range(network):
    ((limit,),) = make_limits([Budget(macs=0.1)], network)
    floors = torch.tensor([2.0, 2.0])  # 8 + 4 + 4 multiply-adds
    with pytest.raises(ArgumentError, match=r"at least 16 of 104 remain.*\n.*=0.1539 "):
        check_reachable([limit], floors)


def test_what_no_removal_makes_less_should_not_be_limited(network):
    ((limit,),) = make_limits([Budget(macs=0.9)], network)
    with pytest.raises(ArgumentError, match=r"makes it no less: leave out `macs=`, "):
        check_reachable([limit], network.widths())


def test_the_range_that_is_named_can_be_met(network):
    ((limit,),) = make_limits([Budget(macs=0.1539)], network)
    check_reachable([limit], torch.tensor([2.0, 2.0]))


def test_marginal_costs_are_those_of_one_unit_more(network):
    (limits,) = make_limits([Budget(macs=0.5, parameters=0.5)], network)
    found = marginal(limits, [1.0, 10.0], torch.tensor([3.0, 5.0]).double())
    macs, params = [4 + 5, 3 + 2], [5 + 5, 4 + 2]
    expected = [m / 104 + 10 * p / 122 for m, p in zip(macs, params, strict=True)]
    assert found.tolist() == pytest.approx(expected)

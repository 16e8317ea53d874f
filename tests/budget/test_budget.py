import pytest

from diffprune._budget import Budget
from diffprune._core.amounts import absolute
from diffprune.errors import ArgumentError


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (0.25, 50.0),
        (1.0, 200.0),
        (1, 200.0),
        (40, 40.0),
        (40.5, 40.5),
        ("3 M", 3e6),
    ],
)
def test_amounts_are_fractions_numbers_or_text(amount, expected):
    assert absolute(amount, 200.0, "macs") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("name", "amount", "expected"),
    [
        ("latency", "5 ms", 0.005),
        ("latency", "250us", 0.00025),
        ("memory", "1.5 MB", 1.5e6),
        ("size", "2e3 kb", 2e6),
        ("parameters", "2 k", 2e3),
    ],
)
def test_every_cost_has_its_own_units(name, amount, expected):
    assert absolute(amount, 200.0, name) == pytest.approx(expected)


@pytest.mark.parametrize(
    "asked", [{"latency": "5 kB"}, {"size": "5 ms"}, {"macs": "5 MB"}], ids=str
)
def test_a_unit_of_another_cost_is_refused(asked):
    with pytest.raises(ArgumentError, match=r"is no amount of .* such as"):
        Budget(**asked)


@pytest.mark.parametrize("amount", [0, -0.5, float("nan"), float("inf")])
def test_amounts_that_cannot_be_met_are_refused(amount):
    with pytest.raises(
        ArgumentError, match=r"parameters.* (cannot be met|must be a finite number)"
    ):
        Budget(parameters=amount)


@pytest.mark.parametrize("text", ["5", "ms", "5 parsecs", "1.2.3 ms", "-5 ms"])
def test_text_without_number_or_unit_is_refused(text):
    with pytest.raises(ArgumentError, match="write a number and one of the units"):
        Budget(latency=text)


def test_nothing_is_free():
    with pytest.raises(ArgumentError, match="nothing costs nothing"):
        Budget(latency="0 ms")


def test_a_budget_without_a_limit_is_refused():
    with pytest.raises(ArgumentError, match=r"give it one of `macs=`.*\n.*macs=0.3"):
        Budget(steps=100)


def test_training_takes_a_step():
    with pytest.raises(ArgumentError, match="at least 1, got 0"):
        Budget(macs=0.3, steps=0)


def test_budgets_are_plain_data():
    budget = Budget(macs=0.3, latency="5 ms", steps=7)
    assert Budget(**budget.to_dict()) == budget

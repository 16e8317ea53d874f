import pytest

from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.lab.cli.budget_option import NAMES, parse_budget


@pytest.mark.parametrize("name", NAMES)
def test_every_cost_can_be_limited(name):
    assert parse_budget([f"{name}=0.25"]) == {name: 0.25}


@pytest.mark.parametrize(
    ("spec", "amount"), [("size=200kB", "200kB"), ("size = 1e5", 1e5)]
)
def test_an_amount_is_a_number_or_has_a_unit(spec, amount):
    assert parse_budget([spec]) == {"size": amount}


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    [
        ("flops=0.3", UnknownNameError, "there are `macs`, `parameters`, `memory`"),
        ("steps=3", UnknownNameError, "`steps=3` limits nothing"),
        ("0.3", UnknownNameError, "type `--budget macs=0.3`"),
        ("macs", ArgumentError, "how much"),
        ("macs=", ArgumentError, "how much"),
        ("macs=few", ArgumentError, "'few' is no amount"),
        ("macs=-1", ArgumentError, "macs=-1.0 cannot be met"),
        ("macs=nan", ArgumentError, "cannot be met"),
    ],
)
def test_what_cannot_be_read_is_explained(spec, kind, message):
    with pytest.raises(kind, match=message):
        parse_budget([spec])

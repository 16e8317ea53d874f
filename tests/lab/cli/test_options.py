import pytest

from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.lab.cli.options import check_runs, check_spec, parse_budget


def test_limits_stand_in_one_or_in_several():
    assert parse_budget(["macs=0.25,size=1kB", "latency=5ms"]) == {
        "macs": 0.25,
        "size": "1kB",
        "latency": "5ms",
    }


@pytest.mark.parametrize(
    ("spec", "amount"), [("size=200kB", "200kB"), ("size = 1e5", 1e5)]
)
def test_an_amount_is_a_number_or_has_a_unit(spec, amount):
    assert parse_budget([spec]) == {"size": amount}


@pytest.mark.parametrize("spec", ["0.3", "macs", "macs=", "=3"])
def test_what_is_no_limit_is_explained(spec):
    with pytest.raises(ArgumentError, match=r"is no limit: type `--budget macs=0\.3`"):
        parse_budget([spec])


@pytest.mark.parametrize("specs", [["macs=0.3,macs=0.4"], ["macs=1", "macs=0.4"]])
def test_of_two_limits_of_one_cost_none_is_chosen(specs):
    with pytest.raises(ArgumentError, match="`macs` is limited twice"):
        parse_budget(specs)


def test_missing_files_are_found_early(tmp_path):
    check_spec("digits")
    check_spec("package.module:task")
    with pytest.raises(UnknownNameError, match=r"there is no file `nowhere\.py`"):
        check_spec("nowhere.py:task")
    with pytest.raises(ArgumentError, match="holds no run"):
        check_runs(tmp_path)

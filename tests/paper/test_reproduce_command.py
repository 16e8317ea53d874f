import json

import pytest

from paper.reproduce import write_record


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["alexnet"], "there is no `alexnet`; there are `lenet5`, `wrn`"),
        (["lenet5", "--results", "empty"], "`empty` holds no records"),
    ],
)
def test_what_cannot_be_found_is_explained(diffprune, arguments, message):
    done = diffprune("reproduce", *arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert message in done.stderr


@pytest.fixture
def records(finished, tmp_path):
    """A record of a finished run, as if it were one of the paper's."""
    write_record(finished / "runs/mine", tmp_path / "records/mine")
    return "records"


def test_the_table_is_made_from_records(diffprune, records):
    done = diffprune("reproduce", "lenet5", "--results", records)
    assert done.exit_code == 0, done.stderr
    assert "DiffPrune" in done.stdout


def test_json_is_our_runs(diffprune, records):
    done = diffprune("reproduce", "lenet5", "--results", records, "--json")
    (run,) = json.loads(done.stdout)
    assert (run["folder"], run["epochs"]) == ("records/mine", 3)

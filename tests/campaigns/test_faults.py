"""A disk that refuses is named, and earlier files are intact; here at some duties."""

import errno
import random

import pytest

from tests.campaigns.faults import SAVES, strike
from tests.campaigns.kills import killed_runs


@pytest.mark.parametrize("name", [n for n in SAVES if n != "to_exported_program"])
def test_a_disk_that_refuses(name, tmp_path):
    for number in random.Random(name).sample(range(8), 3):  # noqa: S311 - no secret
        verdict, _ = strike(name, tmp_path / str(number), number, errno.ENOSPC)
        assert verdict in {"refused", "written"}


@pytest.mark.slow
def test_a_run_that_is_killed_comes_to_the_same(tmp_path):
    found = killed_runs(tmp_path, kills=3, seed=0)
    assert found["kills"] >= 3
    assert found["other weights"] == found["failed"] == 0

"""Two networks measured against each other."""

import pytest
import torch
from torch import nn

import diffprune as dp


@pytest.fixture
def pair():
    wide = nn.Sequential(nn.Linear(300, 900), nn.ReLU(), nn.Linear(900, 300))
    narrow = nn.Sequential(nn.Linear(300, 9), nn.ReLU(), nn.Linear(9, 300))
    return wide, narrow.train()


def test_the_small_one_is_faster_leaner_and_smaller(pair):
    found = dp.benchmark(*pair, torch.rand(64, 300), rounds=5)
    dense, small = found.measured
    assert dense.ratio == 1.0
    assert small.ratio < 0.5
    assert small.memory < dense.memory
    assert small.file_size < dense.file_size / 20
    assert pair[1].training


def test_it_reads_as_a_table(pair):
    found = dp.benchmark(*pair, (torch.rand(1, 300),), rounds=2)
    first, *rows = str(found).splitlines()
    assert first.split() == [
        "network", "engine", "ms", "speed", "quartiles", "memory", "file"
    ]  # fmt: skip
    assert [row.split()[0] for row in rows] == ["dense", "small"]
    assert "<table>" in found._repr_html_()


def test_nothing_is_said_while_it_measures(pair, capfd):
    dp.benchmark(*pair, torch.rand(1, 300), rounds=2)
    assert capfd.readouterr() == ("", "")

import copy

import pytest
import torch
from torch import nn

import diffprune as dp


class Net(nn.Module):
    """5 -> fc1 16 -> batch norm -> relu -> fc2 12 -> relu -> fc3 1."""

    def __init__(self, hidden=16, *, depth=1):
        super().__init__()
        self.depth = depth
        self.fc1 = nn.Linear(5, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.fc2 = nn.Linear(hidden, 12)
        self.fc3 = nn.Linear(12, 1)
        self.register_buffer("scale", torch.rand(1), persistent=False)

    def forward(self, x):
        return self.fc3(self.fc2(self.norm(self.fc1(x)).relu()).relu()) * self.scale


@pytest.fixture
def make():
    """Builds a vanilla model, with other numbers every time."""
    return Net


@pytest.fixture
def inputs():
    return torch.rand(4, 5)


@pytest.fixture(scope="session")
def pruned():
    keep = {"fc1": torch.arange(16) % 2 == 0, "fc2": torch.arange(12) % 2 == 1}
    return dp.remove(Net(), torch.rand(4, 5), keep=keep)


@pytest.fixture
def small(pruned):
    """A model of which half is gone."""
    return copy.deepcopy(pruned)


@pytest.fixture
def folder(small, tmp_path):
    return dp.save_pruned(small, tmp_path / "saved")

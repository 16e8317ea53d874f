import pytest

TASK = """
import torch
from torch import nn
from diffprune.lab import Task
from diffprune.lab.image_batches import Batches, Examples


def make(recipe):
    inputs = torch.randn(48, 4, generator=torch.Generator().manual_seed(1))
    data = Examples(inputs, (inputs.sum(dim=1) > 0).long())
    batches = Batches(data, recipe.batch_size, shuffle=True)
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    return Task(model=model, train=batches, test=Batches(data, 48))
"""


@pytest.fixture
def task(tmp_path):
    (tmp_path / "toy.py").write_text(TASK)
    return f"{tmp_path / 'toy.py'}:make"

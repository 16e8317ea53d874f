import pytest
import torch
from torch import nn

from diffprune import find_groups
from diffprune.surgery import removal


class Between(nn.Module):
    """4 -> fc 8 -> relu -> body -> fc, or whatever the body returns."""

    def __init__(self, body, width=8, read=8):
        super().__init__()
        self.first = nn.Linear(4, width)
        self.last = nn.Linear(read, 3)
        self.body, self.part, self.width = body, 3, width
        self.register_buffer("memory", torch.ones(2, width))

    def forward(self, x):
        return self.body(self, self.first(x).relu())


@pytest.fixture
def between():
    """Builds a network around a function of `(module, hidden)`, in double precision."""
    return lambda body, **sizes: Between(body, **sizes).double().eval()


@pytest.fixture
def x():
    return torch.randn(2, 4, dtype=torch.float64)


@pytest.fixture
def sizes(x):
    """Sizes of the groups of a model by name, each removed from and found exact."""

    def check(model, inputs=None, **options):
        inputs = x if inputs is None else inputs
        groups = find_groups(model, inputs, **options)
        keep = {group.name: torch.arange(group.size) != 1 for group in groups}
        removal(model, inputs, groups, keep=keep)
        return {group.name: group.size for group in groups}

    return check


@pytest.fixture
def reason(x):
    """Why the units of the first layer are frozen."""

    def find(model, inputs=None, **options):
        groups = find_groups(model, x if inputs is None else inputs, **options)
        assert not len(groups)
        frozen = [str(axis.reason) for axis in groups.frozen if axis.size != 4]
        return next(text for text in frozen if "output of the model" not in text)

    return find

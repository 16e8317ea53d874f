import pytest
import torch
from torch import nn

from diffprune import find_groups
from diffprune._graph.tracing import trace
from diffprune.errors import TraceError


class Packs(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 5, batch_first=True)

    def forward(self, x):
        lengths = torch.tensor([4, 2])
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0])[0]


def test_packed_sequences_are_named_in_the_advice():
    with pytest.raises(TraceError, match="pack_padded_sequence"):
        trace(Packs(), torch.rand(2, 4, 3))


def test_gradients_in_a_forward_are_named_in_the_advice():
    class Slope(nn.Linear):
        def forward(self, x):
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                return torch.autograd.grad(super().forward(x).sum(), x)[0]

    with pytest.raises(TraceError, match=r"calls `torch\.autograd\.grad`"):
        find_groups(Slope(4, 3), torch.rand(2, 4))

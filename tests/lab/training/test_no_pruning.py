import torch
from torch import nn

import diffprune as dp
from diffprune.lab.training.no_pruning import NoPruning


def test_a_dense_run_counts_as_a_pruned_one_does():
    """Torch's counter sees neither recurrent layers nor its own fast attention."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    x = torch.rand(2, 5, 8)
    dense = NoPruning(layer, x).dense
    assert dense.macs == dp.Pruner(layer, x, strength=0.0).dense.macs > 1000


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x) if x.sum() > -1e9 else x


def test_what_cannot_be_traced_is_counted_by_torch():
    assert NoPruning(Branching(), torch.rand(2, 4)).dense.macs == 2 * 4 * 3

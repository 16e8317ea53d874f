import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diffprune import find_groups


def network(norm):
    layers = [nn.Linear(4, 6), norm, nn.ReLU(), nn.Linear(6, 3)]
    return nn.Sequential(*layers).double().eval()


@pytest.mark.parametrize(
    ("norm", "found"),
    [
        (nn.BatchNorm1d(6), {"0": 6}),
        (nn.BatchNorm1d(6, affine=False), {"0": 6}),
        (nn.GroupNorm(6, 6), {"0": 6}),
        (nn.GroupNorm(3, 6), {"0": 3}),
        (nn.GroupNorm(1, 6), {}),
        (nn.LayerNorm(6), {}),
        (nn.RMSNorm(6), {}),
        (nn.Softmax(dim=1), {}),
    ],
    ids=str,
)
def test_units_are_cut_unless_statistics_couple_them(sizes, norm, found):
    x = torch.randn(3, 4, dtype=torch.float64)
    assert sizes(network(norm), x) == found


@pytest.mark.parametrize(
    "norm", [nn.BatchNorm1d(5), nn.InstanceNorm1d(5, track_running_stats=True)], ids=str
)
def test_units_beside_the_channels_of_a_norm_are_coupled_in_training(sizes, norm):
    tokens = torch.randn(3, 5, 4, dtype=torch.float64)
    assert sizes(network(norm), tokens) == {}


def test_the_reason_names_the_layer(reason):
    text = reason(network(nn.LayerNorm(6)), torch.randn(3, 4, dtype=torch.float64))
    assert "every unit affects the others: `aten.layer_norm` in `1`" in text


def test_rolled_units_are_frozen(between, sizes):
    assert sizes(between(lambda m, h: m.last(h.roll(1, 1)))) == {}


class Standardised(nn.Module):
    """A linear layer whose rows are standardised by a batch norm of the weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 11), nn.Linear(11, 3)

    def forward(self, x):
        rows = self.second.weight[None]
        weight = F.batch_norm(rows, None, None, training=True)[0]
        return F.linear(self.first(x), weight, self.second.bias)


def test_a_weight_standardised_by_its_own_statistics_couples_its_columns():
    groups = find_groups(Standardised(), torch.rand(2, 5))
    assert not groups
    assert any("statistics" in str(axis.reason) for axis in groups.frozen)

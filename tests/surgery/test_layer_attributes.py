import pytest
import torch
from torch import nn

from diffprune._surgery.layer_attributes import refresh_attributes_

# Two layers of each kind that differ in width alone; the tensors of the second are put
# into the first, which then has to describe itself as the second does.
PAIRS = {
    "linear": (nn.Linear(3, 5), nn.Linear(2, 4)),
    "conv1d": (nn.Conv1d(3, 5, 2), nn.Conv1d(2, 4, 2)),
    "conv2d": (nn.Conv2d(6, 9, 3, groups=3), nn.Conv2d(3, 6, 3, groups=3)),
    "conv3d": (nn.Conv3d(3, 5, 1), nn.Conv3d(2, 4, 1)),
    "transposed1d": (nn.ConvTranspose1d(3, 5, 2), nn.ConvTranspose1d(2, 4, 2)),
    "transposed2d": (
        nn.ConvTranspose2d(6, 9, 3, groups=3),
        nn.ConvTranspose2d(3, 6, 3, groups=3),
    ),
    "batch_norm": (nn.BatchNorm2d(5), nn.BatchNorm2d(4)),
    "batch_norm_without_scale": (
        nn.BatchNorm1d(5, affine=False),
        nn.BatchNorm1d(4, affine=False),
    ),
    "batch_norm_without_statistics": (
        nn.BatchNorm3d(5, track_running_stats=False),
        nn.BatchNorm3d(4, track_running_stats=False),
    ),
    "sync_batch_norm": (nn.SyncBatchNorm(5), nn.SyncBatchNorm(4)),
    "instance_norm": (
        nn.InstanceNorm2d(5, affine=True),
        nn.InstanceNorm2d(4, affine=True),
    ),
    "group_norm": (nn.GroupNorm(2, 6), nn.GroupNorm(2, 4)),
    "embedding": (nn.Embedding(7, 5), nn.Embedding(7, 4)),
    "embedding_bag": (nn.EmbeddingBag(7, 5), nn.EmbeddingBag(7, 4)),
    "prelu": (nn.PReLU(5), nn.PReLU(4)),
    "bilinear": (nn.Bilinear(3, 4, 5), nn.Bilinear(2, 3, 4)),
    "lstm": (nn.LSTM(3, 5), nn.LSTM(2, 4)),
    "gru": (nn.GRU(3, 5, num_layers=2), nn.GRU(2, 4, num_layers=2)),
    "elman": (nn.RNN(3, 5), nn.RNN(2, 4)),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_a_layer_describes_the_tensors_it_has(kind):
    layer, smaller = PAIRS[kind]
    before = str(layer)
    for name, tensor in [*smaller.named_parameters(), *smaller.named_buffers()]:
        setattr(layer, name, tensor)
    refresh_attributes_(layer)
    assert str(layer) == str(smaller) != before


@pytest.mark.parametrize(
    "layer",
    [
        nn.LayerNorm(5),
        nn.ReLU(),
        nn.GroupNorm(2, 4, affine=False),
        nn.InstanceNorm1d(5),
        nn.MultiheadAttention(6, 2),
    ],
    ids=repr,
)
def test_other_layers_are_left_alone(layer):
    before = dict(vars(layer))
    refresh_attributes_(layer)
    assert vars(layer) == before


def test_a_parametrized_layer_describes_the_weight_it_computes():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 5))
    originals = layer.parametrizations.weight
    originals.original0 = nn.Parameter(originals.original0[:4])
    originals.original1 = nn.Parameter(originals.original1[:4])
    refresh_attributes_(layer)
    assert (layer.out_features, layer.in_features) == (4, 3)
    assert layer.weight.shape == torch.Size([4, 3])

"""Normalisations: which statistics couple which units."""

import torch
from torch import nn
from torch.nn import functional as F

from .entry import FROZEN, Entry, at_least, floats


def _two_convs(norm: nn.Module) -> nn.Sequential:
    """3 -> conv 12 -> norm -> ReLU -> conv 5 -> pool."""
    return nn.Sequential(
        nn.Conv2d(3, 12, 3),
        norm,
        nn.ReLU(),
        nn.Conv2d(12, 5, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


class BatchNorms(nn.Module):
    """3 -> fc 11 -> BN -> fc 13 -> BN, not affine -> fc 17 -> F.batch_norm -> fc 5."""

    def __init__(self):
        super().__init__()
        self.fc1, self.bn1 = nn.Linear(3, 11), nn.BatchNorm1d(11)
        self.fc2, self.bn2 = nn.Linear(11, 13), nn.BatchNorm1d(13, affine=False)
        self.fc3 = nn.Linear(13, 17)
        self.register_buffer("running_mean", torch.zeros(17))
        self.register_buffer("running_var", torch.ones(17))
        self.fc4 = nn.Linear(17, 5)

    def forward(self, x):
        x = F.relu(self.bn1(self.fc1(x)))
        x = F.relu(self.bn2(self.fc2(x)))
        x = F.batch_norm(self.fc3(x), self.running_mean, self.running_var)
        return self.fc4(F.relu(x))


class PreActivation(nn.Module):
    """
    3 -> conv 11 -+-> BN -> ReLU -> conv 13 -> BN -> ReLU -> conv 11 -(+)-> BN -> fc 5
                  +----------------------------------------------------+
    """

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 11, 3)
        self.bn1 = nn.BatchNorm2d(11)
        self.conv1 = nn.Conv2d(11, 13, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(13)
        self.conv2 = nn.Conv2d(13, 11, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(11)
        self.fc = nn.Linear(11, 5)

    def forward(self, x):
        x = self.stem(x)
        out = self.conv1(F.relu(self.bn1(x)))
        out = self.conv2(F.relu(self.bn2(out)))
        return self.fc(self.bn3(out + x).mean((2, 3)))


class InputNorm(nn.Module):
    """3 -> BN(3) -> conv 11 -> BN(11) -> conv 5 -> pool."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.conv1 = nn.Conv2d(3, 11, 3)
        self.bn1 = nn.BatchNorm2d(11)
        self.conv2 = nn.Conv2d(11, 5, 3)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(self.norm(x))))
        return self.conv2(x).mean((2, 3))


class WholeGroups(nn.Module):
    """3 -> conv 15 -> GN(5 x 3) -> conv 14 -> GN(7 x 2) -> conv 11 -> pool -> fc 5."""

    def __init__(self):
        super().__init__()
        self.conv1, self.gn1 = nn.Conv2d(3, 15, 3), nn.GroupNorm(5, 15)
        self.conv2, self.gn2 = nn.Conv2d(15, 14, 3), nn.GroupNorm(7, 14)
        self.conv3 = nn.Conv2d(14, 11, 1)
        self.fc = nn.Linear(11, 5)

    def forward(self, x):
        x = F.silu(self.gn1(self.conv1(x)))
        x = F.silu(self.gn2(self.conv2(x)))
        return self.fc(self.conv3(x).mean((2, 3)))


class LayerNorms(nn.Module):
    """3 -> fc 11 -> LN -> fc 13 -> GELU -> fc 11 -> LN -> fc 5: only 13 is free."""

    def __init__(self):
        super().__init__()
        self.fc1, self.norm1 = nn.Linear(3, 11), nn.LayerNorm(11)
        self.fc2, self.fc3 = nn.Linear(11, 13), nn.Linear(13, 11)
        self.norm2 = nn.LayerNorm(11, bias=False)
        self.fc4 = nn.Linear(11, 5)

    def forward(self, x):
        x = self.norm1(self.fc1(x))
        return self.fc4(self.norm2(self.fc3(F.gelu(self.fc2(x)))))


class SpatialLayerNorm(nn.Module):
    """3 -> conv 11 -> LN over (7 8), not over channels -> conv 13 -> pool -> fc 5."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 11, 3)
        self.norm = nn.LayerNorm((7, 8))
        self.conv2 = nn.Conv2d(11, 13, 3)
        self.fc = nn.Linear(13, 5)

    def forward(self, x):
        x = F.relu(self.norm(self.conv1(x)))
        return self.fc(self.conv2(x).mean((2, 3)))


class LayerNorm2d(nn.LayerNorm):
    """NCHW -> NHWC -> LN(C) -> NCHW."""

    def forward(self, x):
        x = x.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, as written in language models."""

    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + self.eps))


def _two_linears(norm: nn.Module) -> nn.Sequential:
    """3 -> fc 11 -> norm -> fc 5."""
    return nn.Sequential(nn.Linear(3, 11), norm, nn.Linear(11, 5))


class CosineClassifier(nn.Module):
    """3 -> fc 11 -> normalise -> . normalised rows of w(5 11)."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 11)
        self.weight = nn.Parameter(torch.empty(5, 11))

    def forward(self, x):
        x = F.normalize(self.fc(x), dim=-1)
        return 3 * F.linear(x, F.normalize(self.weight, dim=-1))


class StandardisedConv2d(nn.Conv2d):
    """A convolution whose filters have mean 0 and variance 1."""

    def forward(self, x):
        mean = self.weight.mean((1, 2, 3), keepdim=True)
        std = self.weight.std((1, 2, 3), keepdim=True)
        weight = (self.weight - mean) / (std + 1e-5)
        return F.conv2d(x, weight / 5, self.bias, self.stride, self.padding)


class WeightStandardisation(nn.Sequential):
    """3 -> standardised conv 11 -> ReLU -> standardised conv 13 -> pool -> fc 5."""

    def __init__(self):
        super().__init__(
            StandardisedConv2d(3, 11, 3),
            nn.ReLU(),
            StandardisedConv2d(11, 13, 3, padding=1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(13, 5),
        )


VECTOR, IMAGE = floats(2, 3), floats(2, 3, 9, 10)

ENTRIES = {
    "batch_norms": Entry(BatchNorms, VECTOR, expect=at_least(3)),
    "pre_activation": Entry(PreActivation, IMAGE, expect=at_least(2)),
    "input_norm": Entry(InputNorm, IMAGE, expect=at_least(1)),
    "instance_norm": Entry(
        lambda: _two_convs(nn.InstanceNorm2d(12, affine=True)),
        IMAGE,
        expect=at_least(1),
    ),
    "instance_norm_tracked": Entry(
        lambda: _two_convs(nn.InstanceNorm2d(12, track_running_stats=True)),
        IMAGE,
    ),
    "group_norm": Entry(lambda: _two_convs(nn.GroupNorm(4, 12)), IMAGE),
    "group_norm_per_channel": Entry(lambda: _two_convs(nn.GroupNorm(12, 12)), IMAGE),
    "group_norm_one_group": Entry(
        lambda: _two_convs(nn.GroupNorm(1, 12)), IMAGE, expect=FROZEN
    ),
    "whole_groups": Entry(WholeGroups, IMAGE, expect=at_least(1)),
    "layer_norms": Entry(LayerNorms, VECTOR, expect=at_least(1)),
    "spatial_layer_norm": Entry(SpatialLayerNorm, IMAGE, expect=at_least(1)),
    "layer_norm_2d": Entry(lambda: _two_convs(LayerNorm2d(12)), IMAGE, expect=FROZEN),
    "layer_norm": Entry(lambda: _two_linears(nn.LayerNorm(11)), VECTOR, expect=FROZEN),
    "rms_norm": Entry(lambda: _two_linears(nn.RMSNorm(11)), VECTOR, expect=FROZEN),
    "rms_norm_by_hand": Entry(lambda: _two_linears(RMSNorm(11)), VECTOR, expect=FROZEN),
    "local_response_norm": Entry(
        lambda: _two_convs(nn.LocalResponseNorm(3)), IMAGE, expect=FROZEN
    ),
    "cosine_classifier": Entry(CosineClassifier, VECTOR),
    "weight_standardisation": Entry(WeightStandardisation, IMAGE),
}

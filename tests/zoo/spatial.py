"""Operations between pixels: pooling, resampling, padding, shuffles, unfolding."""

import torch
from torch import nn
from torch.nn import functional as F

from .entry import Entry, at_least, floats


class Pools(nn.Module):
    """3 -> conv 11 -> max + avg + lp + adaptive avg + adaptive max -> conv 5 -> max."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 11, 3, padding=1)
        self.pools = nn.ModuleList(
            [
                nn.MaxPool2d(2),
                nn.AvgPool2d(2),
                nn.LPPool2d(2, 2),
                nn.AdaptiveAvgPool2d((4, 5)),
                nn.AdaptiveMaxPool2d((4, 5)),
            ]
        )
        self.conv2 = nn.Conv2d(11, 5, 1)

    def forward(self, x):
        x = F.softplus(self.conv1(x))
        x = torch.stack([pool(x) for pool in self.pools]).sum(0)
        return self.conv2(x).amax((2, 3))


class Pools1d(nn.Module):
    """3 -> conv1d 11 -> max -> conv1d 13 -> avg -> adaptive max -> squeeze -> fc 5."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(3, 11, 3)
        self.conv2 = nn.Conv1d(11, 13, 3)
        self.fc = nn.Linear(13, 5)

    def forward(self, x):
        x = F.max_pool1d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool1d(F.relu(self.conv2(x)), 2)
        return self.fc(F.adaptive_max_pool1d(x, 1).squeeze(-1))


class PointFeatures(nn.Module):
    """3 -> conv 11 -> its maxima over points, of length 1 -> conv 7 -> the same."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(3, 11, 1), nn.Conv1d(11, 7, 1)

    def forward(self, x):
        hidden = F.relu(self.conv1(x)).max(-1, keepdim=True)[0]
        return self.conv2(F.normalize(hidden, dim=1)).max(-1)[0]


class Unpool(nn.Module):
    """3 -> conv 11 -> max pool with indices -> max unpool -> conv 5 -> pool."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 11, 2)
        self.conv2 = nn.Conv2d(11, 5, 3)

    def forward(self, x):
        x = self.conv1(x)
        pooled, indices = F.max_pool2d(x, 2, return_indices=True)
        x = F.max_unpool2d(pooled, indices, 2, output_size=x.shape[-2:])
        return self.conv2(x).mean((2, 3))


class Resampling(nn.Module):
    """3 -> conv 11 -> nearest -> conv 13 -> linear -> conv 17 -> cubic -> conv 5."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 11, 3)
        self.up = nn.Upsample(scale_factor=2)
        self.conv2 = nn.Conv2d(11, 13, 3, stride=2)
        self.conv3 = nn.Conv2d(13, 17, 3)
        self.conv4 = nn.Conv2d(17, 5, 1)

    def forward(self, x):
        size = x.shape[-2:]
        x = self.conv2(self.up(self.conv1(x)).relu()).relu()
        x = F.interpolate(x, size=size, mode="bilinear", align_corners=False)
        x = F.interpolate(self.conv3(x).relu(), size=(4, 3), mode="bicubic")
        return self.conv4(x).flatten(2).mean(-1)


class Padding(nn.Module):
    """3 -> conv 11 -> crop, pad edge, mirror, 0.5 -> conv 13 (reflect) -> fc 5."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 11, 3)
        self.edge = nn.ReplicationPad2d(1)
        self.mirror = nn.ReflectionPad2d((1, 0, 2, 0))
        self.conv2 = nn.Conv2d(11, 13, 3, padding=1, padding_mode="reflect")
        self.fc = nn.Linear(13, 5)

    def forward(self, x):
        x = F.pad(self.conv1(x), (-1, 0, 0, -1))
        x = F.pad(self.mirror(self.edge(x)), (0, 1, 2, 0), value=0.5)
        return self.fc(F.relu(self.conv2(x)).mean((2, 3)))


class SubPixel(nn.Module):
    """3 -> conv 44 -> pixel shuffle (11, x2) -> conv 13 -> conv 5 -> pool."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 44, 3, padding=1)
        self.shuffle = nn.PixelShuffle(2)
        self.conv2 = nn.Conv2d(11, 13, 3)
        self.conv3 = nn.Conv2d(13, 5, 1)

    def forward(self, x):
        x = F.relu(self.shuffle(self.conv1(x)))
        return self.conv3(F.relu(self.conv2(x))).mean((2, 3))


class SpaceToDepth(nn.Module):
    """3 -> conv 11 -> pixel unshuffle 44 -> conv 13 -> pool -> fc 5."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 11, 3, padding=1)
        self.conv2 = nn.Conv2d(44, 13, 1)
        self.fc = nn.Linear(13, 5)

    def forward(self, x):
        x = F.pixel_unshuffle(F.relu(self.conv1(x)), 2)
        return self.fc(self.conv2(x).mean((2, 3)))


class ShuffleUnit(nn.Module):
    """
    3 -> conv 22 -+-> 11 -------------------------------(cat)-> shuffle -> pool -> fc 5
                  +-> 11 -> conv 13 -> dw 13 -> conv 11 --+
    """

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 22, 3)
        self.branch = nn.Sequential(
            nn.Conv2d(11, 13, 1),
            nn.ReLU(),
            nn.Conv2d(13, 13, 3, padding=1, groups=13),
            nn.Conv2d(13, 11, 1),
        )
        self.fc = nn.Linear(22, 5)

    def forward(self, x):
        left, right = self.stem(x).chunk(2, dim=1)
        x = torch.cat((left, self.branch(right)), dim=1)
        b, c, h, w = x.size()
        x = x.view(b, 2, c // 2, h, w).transpose(1, 2).contiguous().view(b, -1, h, w)
        return self.fc(x.mean([2, 3]))


class ChannelShuffle(nn.Sequential):
    """3 -> conv 14 -> shuffle(2) -> depthwise 14 -> conv 11 -> pool -> fc 5."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 14, 3),
            nn.ChannelShuffle(2),
            nn.Conv2d(14, 14, 3, groups=14),
            nn.ReLU(),
            nn.Conv2d(14, 11, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(1),
            nn.Linear(11, 5),
        )


class GroupedShuffle(nn.Module):
    """3 -> conv 12 -> grouped(3) 15 -> shuffle -> grouped(5) 20 -> pool -> fc 5."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3)
        self.conv1 = nn.Conv2d(12, 15, 1, groups=3)
        self.conv2 = nn.Conv2d(15, 20, 1, groups=5)
        self.fc = nn.Linear(20, 5)

    def forward(self, x):
        x = self.conv1(F.relu(self.stem(x)))
        b, _, h, w = x.shape
        x = x.reshape(b, 3, 5, h, w).permute(0, 2, 1, 3, 4).reshape(b, 15, h, w)
        return self.fc(F.relu(self.conv2(x)).mean((2, 3)))


class Unfold(nn.Module):
    """3 -> conv 11 -> unfold 11*2*2 -> fc 13 -> fc 17*2*2 -> fold 17 -> conv 5."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 11, 2)
        self.fc1 = nn.Linear(44, 13)
        self.fc2 = nn.Linear(13, 68)
        self.conv2 = nn.Conv2d(17, 5, 1)

    def forward(self, x):
        x = self.conv1(x)[..., :8]
        patches = F.unfold(x, kernel_size=2, stride=2).transpose(1, 2)
        patches = self.fc2(F.relu(self.fc1(patches))).transpose(1, 2)
        return self.conv2(F.fold(patches, x.shape[-2:], 2, stride=2)).mean((2, 3))


class SpatialTransformer(nn.Module):
    """
    3 -> conv 11 -+------------------> grid sample -> conv 5 -> pool
                  +-> pool -> fc 6 -> grid -+
    """

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 11, 3)
        self.localise = nn.Linear(11, 6)
        self.conv2 = nn.Conv2d(11, 5, 1)

    def forward(self, x):
        x = self.conv1(x)
        theta = self.localise(x.mean((2, 3))).view(-1, 2, 3)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return self.conv2(F.grid_sample(x, grid, align_corners=False)).mean((2, 3))


IMAGE = floats(2, 3, 9, 10)
EVEN_IMAGE = floats(2, 3, 8, 10)

ENTRIES = {
    "pools": Entry(Pools, IMAGE, expect=at_least(1)),
    "pools1d": Entry(Pools1d, floats(2, 3, 23), expect=at_least(2)),
    "point_features": Entry(PointFeatures, floats(2, 3, 13), expect=at_least(1)),
    "unpool": Entry(Unpool, IMAGE),
    "resampling": Entry(Resampling, IMAGE, expect=at_least(3)),
    "padding": Entry(Padding, IMAGE, expect=at_least(2)),
    "sub_pixel": Entry(SubPixel, IMAGE, expect=at_least(1)),
    "space_to_depth": Entry(SpaceToDepth, EVEN_IMAGE, expect=at_least(1)),
    "shuffle_unit": Entry(ShuffleUnit, IMAGE, expect=at_least(1)),
    "channel_shuffle": Entry(ChannelShuffle, IMAGE, expect=at_least(1)),
    "grouped_shuffle": Entry(GroupedShuffle, IMAGE),
    "unfold": Entry(Unfold, IMAGE, expect=at_least(3)),
    "spatial_transformer": Entry(SpatialTransformer, IMAGE),
}

"""Branches that meet: concatenation, splitting, products, broadcasting."""

import torch
from torch import nn
from torch.nn import functional as F

from .entry import Entry, at_least, floats


class DenseNet(nn.Module):
    """
    3 -> conv 11 -+-> BN -> conv 13 -+-> BN -> conv 17 -+
                  +---------------(cat 24)-----------(cat 41)-> BN -> conv 19 -> fc 5
    """

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 11, 3)
        self.layer1 = nn.Sequential(nn.BatchNorm2d(11), nn.ReLU(), nn.Conv2d(11, 13, 1))
        self.layer2 = nn.Sequential(nn.BatchNorm2d(24), nn.ReLU(), nn.Conv2d(24, 17, 1))
        self.transition = nn.Sequential(nn.BatchNorm2d(41), nn.Conv2d(41, 19, 1))
        self.fc = nn.Linear(19, 5)

    def forward(self, x):
        features = [self.stem(x)]
        for layer in (self.layer1, self.layer2):
            features.append(layer(torch.cat(features, 1)))
        x = F.relu(self.transition(torch.cat(features, 1)))
        return self.fc(x.mean((2, 3)))


class Inception(nn.Module):
    """
           +-> 1x1 11 ------------+
    3 -----+-> 1x1 13 -> 3x3 17 --+-(cat 54)-> conv 23 -> flatten -> fc 5
           +-> pool -> 1x1 26 ----+
    """

    def __init__(self):
        super().__init__()
        self.branch1 = nn.Conv2d(3, 11, 1)
        self.branch2 = nn.Sequential(nn.Conv2d(3, 13, 1), nn.Conv2d(13, 17, 3, 1, 1))
        self.pool = nn.MaxPool2d(3, stride=1, padding=1)
        self.branch3 = nn.Conv2d(3, 26, 1)
        self.conv = nn.Conv2d(54, 23, 3, stride=3)
        self.fc = nn.Linear(23 * 3 * 3, 5)

    def forward(self, x):
        branches = [self.branch1(x), self.branch2(x), self.branch3(self.pool(x))]
        x = F.relu(self.conv(F.relu(torch.cat(branches, dim=1))))
        return self.fc(x.view(x.size(0), -1))


class UNet(nn.Module):
    """
    3 -> conv 11 -+----------------------------(cat 24)-> conv 19 -> conv 5
                  +-> pool -> conv 17 -> convT 13 -+
    """

    def __init__(self):
        super().__init__()
        self.down1 = nn.Conv2d(3, 11, 3, padding=1)
        self.down2 = nn.Conv2d(11, 17, 3, padding=1)
        self.up = nn.ConvTranspose2d(17, 13, 2, stride=2)
        self.fuse = nn.Conv2d(24, 19, 3, padding=1)
        self.head = nn.Conv2d(19, 5, 1)

    def forward(self, x):
        skip = F.relu(self.down1(x))
        x = F.relu(self.down2(F.max_pool2d(skip, 2)))
        x = torch.cat([skip, self.up(x)], dim=-3)
        return self.head(F.relu(self.fuse(x)))


class ConcatThenAdd(nn.Module):
    """
    3 -+-> fc 11 -(cat)-> 24 -(+)-> fc 5      the sum cuts one layer in two
       +-> fc 13 -+           |
       +-> fc 24 -------------+
    """

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(3, 11), nn.Linear(3, 13), nn.Linear(3, 24)
        self.head = nn.Linear(24, 5)

    def forward(self, x):
        return self.head(torch.hstack((self.a(x), self.b(x))).tanh() + self.c(x))


class MisalignedConcats(nn.Module):
    """
    3 -+-> fc 11 -(cat)- fc 13 ==> 24 -(+)-> fc 5      11|13 meets 13|11
       +-> fc 13 -(cat)- fc 11 ==> 24 --+
    """

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 11), nn.Linear(3, 13)
        self.c, self.d = nn.Linear(3, 13), nn.Linear(3, 11)
        self.head = nn.Linear(24, 5)

    def forward(self, x):
        left = torch.cat((self.a(x), self.b(x)), -1)
        right = torch.cat((self.c(x), self.d(x)), -1)
        return self.head(F.relu(left + right))


class Splits(nn.Module):
    """
    3 -> fc 41 -> split -+-> 11 -> fc 29 -+-> slice 12 -> fc 5 -----------(+)
                         |                +-> narrow 17 -(+)               |
                         +-> 13 -> fc 17 ----------------(+)-> fc 5 -------+
                         +-> 17 -------------------------(+)
    """

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(3, 41)
        self.fc1 = nn.Linear(11, 29)
        self.fc2 = nn.Linear(13, 17)
        self.fc3 = nn.Linear(12, 5)
        self.head = nn.Linear(17, 5)

    def forward(self, x):
        sizes = [layer.in_features for layer in (self.fc1, self.fc2, self.head)]
        a, b, c = torch.split(self.stem(x).relu(), sizes, dim=-1)
        a = self.fc1(a)
        trunk = a.narrow(1, 0, sizes[-1]) + self.fc2(b) + c
        return self.head(trunk.relu()) + self.fc3(a[:, sizes[-1] :])


class GatedConv(nn.Module):
    """
    3 -> conv 11 -+-> fc 28 -> split as a -+-> 14 -> gelu --(*)-> fc 11 -(+)-> fc 5
                  |            tuple says  +-> 3 -----(cat)--+            |
                  |                        +-> dw 11 ---+                 |
                  +-------------------------------------------------------+
    """

    def __init__(self):
        super().__init__()
        self.sizes = (14, 3, 11)
        self.stem = nn.Conv2d(3, 11, 3)
        self.fc1 = nn.Linear(11, 28)
        self.conv = nn.Conv2d(11, 11, 3, padding=1, groups=11)
        self.fc2 = nn.Linear(14, 11)
        self.head = nn.Linear(11, 5)

    def forward(self, x):
        x = self.stem(x).permute(0, 2, 3, 1)
        gate, same, mixed = torch.split(self.fc1(x), self.sizes, dim=-1)
        mixed = self.conv(mixed.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        x = x + self.fc2(F.gelu(gate) * torch.cat((same, mixed), dim=-1))
        return self.head(x.mean((1, 2)))


class PartialConv(nn.Module):
    """3 -> conv 18 -> conv 7 over the first 7, in their place -> fc 13 -> fc 5."""

    def __init__(self):
        super().__init__()
        self.width = 7
        self.stem = nn.Conv2d(3, 18, 3)
        self.conv = nn.Conv2d(7, 7, 3, padding=1)
        self.fc1, self.head = nn.Conv2d(18, 13, 1), nn.Linear(13, 5)

    def forward(self, x):
        x = F.relu(self.stem(x))
        out = x.clone()
        out[:, : self.width] = self.conv(x[:, : self.width])
        return self.head(F.relu(self.fc1(out)).mean((2, 3)))


class PaddedShortcut(nn.Module):
    """
    3 -> conv 7 -+-> conv 13 -> bn ----------(+)-> relu -> fc 5
                 +-> every second pixel,      |
                     2 and 4 zeros around it -+
    """

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 7, 3, padding=1)
        self.conv = nn.Conv2d(7, 13, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(13)
        self.head = nn.Linear(13, 5)

    def forward(self, x):
        x = F.relu(self.stem(x))
        shortcut = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 2, 4))
        return self.head(F.relu(self.norm(self.conv(x)) + shortcut).mean((2, 3)))


class StackUnbind(nn.Module):
    """
    3 -+-> fc 11 -(stack)-> (b 2 11) -> * w(2 1) -> unbind -> a * b -> fc 5
       +-> fc 11 -+
    """

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(3, 11), nn.Linear(3, 11)
        self.weight = nn.Parameter(torch.empty(2, 1))
        self.head = nn.Linear(11, 5)

    def forward(self, x):
        pair = torch.stack([self.left(x), self.right(x)], dim=1)
        left, right = (pair * self.weight).unbind(1)
        return self.head(left.tanh() * right)


class CSP(nn.Module):
    """
    3 -> conv 22 -> chunk -+-> 11 -----------------------------(cat 33)-> conv 17 -> 5
                           +-> 11 -+--------------------------------+
                                   +-> conv 13 -> conv 11 -(+)------+
                                   +------------------------+
    """

    def __init__(self):
        super().__init__()
        self.cv1 = nn.Conv2d(3, 22, 1)
        self.bottleneck = nn.Sequential(
            nn.Conv2d(11, 13, 3, padding=1), nn.SiLU(), nn.Conv2d(13, 11, 1)
        )
        self.cv2 = nn.Conv2d(33, 17, 1)
        self.fc = nn.Linear(17, 5)

    def forward(self, x):
        parts = list(self.cv1(x).chunk(2, 1))
        parts.append(parts[-1] + self.bottleneck(parts[-1]))
        return self.fc(F.silu(self.cv2(torch.cat(parts, 1))).mean((2, 3)))


class SqueezeExcite(nn.Module):
    """
    3 -> conv 11 -+----------------------------------(*)-> conv 5 -> pool
                  +-> pool -> fc 7 -> fc 11 -> sigmoid -+
    """

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 11, 3)
        self.fc = nn.Sequential(
            nn.Linear(11, 7), nn.ReLU(), nn.Linear(7, 11), nn.Sigmoid()
        )
        self.conv2 = nn.Conv2d(11, 5, 1)

    def forward(self, x):
        x = self.conv1(x)
        b, c, _, _ = x.size()
        scale = self.fc(F.adaptive_avg_pool2d(x, 1).view(b, c)).view(b, c, 1, 1)
        return self.conv2(x * scale.expand_as(x)).mean((2, 3))


class OuterProduct(nn.Module):
    """
    3 -+-> fc 11 -> (b 11 1) -(*)-> (b 11 13) -> flatten 143 -> fc 5
       +-> fc 13 -> (b 1 13) --+
    """

    def __init__(self):
        super().__init__()
        self.rows, self.columns = nn.Linear(3, 11), nn.Linear(3, 13)
        self.head = nn.Linear(143, 5)

    def forward(self, x):
        outer = self.rows(x)[:, :, None] * self.columns(x).unsqueeze(1)
        return self.head(outer.flatten(1))


class Gram(nn.Module):
    """3 -> conv 7 -> ReLU -> all products of two channels (7 7) -> flatten -> fc 5."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 7, 3), nn.Linear(49, 5)

    def forward(self, x):
        features = self.conv(x).relu().flatten(2)
        return self.head((features @ features.mT).flatten(1))


class SelectiveKernel(nn.Module):
    """
    3 -+-> conv3 11 -+-> (+) -> pool -> fc 7 -> fc 2*11 -> softmax over 2
       +-> conv5 11 -+------------------------(* and sum over 2)-> fc 5
    """

    def __init__(self):
        super().__init__()
        self.conv3 = nn.Conv2d(3, 11, 3, padding=1)
        self.conv5 = nn.Conv2d(3, 11, 5, padding=2)
        self.squeeze, self.select = nn.Linear(11, 7), nn.Linear(7, 22)
        self.head = nn.Linear(11, 5)

    def forward(self, x):
        paths = torch.stack([self.conv3(x), self.conv5(x)], dim=1)
        scores = self.select(F.relu(self.squeeze(paths.sum(1).mean((2, 3)))))
        scores = scores.view(x.shape[0], 2, -1).softmax(dim=1)
        return self.head((paths * scores[..., None, None]).sum(1).mean((2, 3)))


class ChannelSelect(nn.Module):
    """3 -> conv 11 -> x[:, [7 2 2 9 0]] -> conv 13 -> pool -> fc 5."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 11, 3)
        self.register_buffer("chosen", torch.tensor([7, 2, 2, 9, 0]))
        self.conv2 = nn.Conv2d(5, 13, 1)
        self.fc = nn.Linear(13, 5)

    def forward(self, x):
        x = self.conv1(x).index_select(1, self.chosen)
        return self.fc(F.relu(self.conv2(x)).mean((2, 3)))


VECTOR, IMAGE = floats(2, 3), floats(2, 3, 9, 10)

ENTRIES = {
    "densenet": Entry(DenseNet, IMAGE, expect=at_least(4)),
    "inception": Entry(Inception, IMAGE, expect=at_least(5)),
    "unet": Entry(UNet, floats(2, 3, 8, 10), expect=at_least(4)),
    "concat_then_add": Entry(ConcatThenAdd, VECTOR, expect=at_least(1)),
    "misaligned_concats": Entry(MisalignedConcats, VECTOR),
    "splits": Entry(Splits, VECTOR, expect=at_least(1)),
    "gated_conv": Entry(GatedConv, IMAGE, expect=at_least(3)),
    "partial_conv": Entry(PartialConv, IMAGE, expect=at_least(3)),
    "padded_shortcut": Entry(PaddedShortcut, IMAGE, expect=at_least(1)),
    "stack_unbind": Entry(StackUnbind, VECTOR, expect=at_least(1)),
    "csp": Entry(CSP, IMAGE, expect=at_least(2)),
    "squeeze_excite": Entry(SqueezeExcite, IMAGE, expect=at_least(2)),
    "outer_product": Entry(OuterProduct, VECTOR, expect=at_least(2)),
    "gram": Entry(Gram, IMAGE, expect=at_least(1)),
    "selective_kernel": Entry(SelectiveKernel, IMAGE, expect=at_least(1)),
    "channel_select": Entry(ChannelSelect, IMAGE, expect=at_least(1)),
}

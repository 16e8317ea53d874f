"""Changes of shape: views, permutations, squeezing, repeating; some hard-coded."""

import torch
from torch import nn
from torch.nn import functional as F

from .entry import Entry, at_least, floats


class Flatten(nn.Module):
    """3 -> conv 11 -> flatten 11*7*8 -> fc 13 -> fc 5."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 11, 3)
        self.fc1 = nn.Linear(11 * 7 * 8, 13)
        self.fc2 = nn.Linear(13, 5)

    def forward(self, x):
        x = F.relu(self.conv(x))
        return self.fc2(F.relu(self.fc1(x.reshape(len(x), -1))))


class ChannelsLastFlatten(nn.Module):
    """3 -> conv 11 -> NHWC -> flatten 7*8*11 -> fc 13 -> fc 5."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 11, 3)
        self.fc1 = nn.Linear(7 * 8 * 11, 13)
        self.fc2 = nn.Linear(13, 5)

    def forward(self, x):
        x = F.relu(self.conv(x)).movedim(1, -1).flatten(1)
        return self.fc2(F.relu(self.fc1(x)))


class Generator(nn.Module):
    """3 -> fc 11*2*3 -> unflatten (11 2 3) -> convT 13 -> conv 5: a GAN's generator."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 66)
        self.unflatten = nn.Unflatten(1, (11, 2, 3))
        self.up = nn.ConvTranspose2d(11, 13, 2, stride=2)
        self.head = nn.Conv2d(13, 5, 1)

    def forward(self, x):
        x = F.relu(self.unflatten(self.fc(x)))
        return self.head(F.relu(self.up(x)))


class FlattenUnflatten(nn.Module):
    """3 -> conv 11 -> (11 56) -> fc over pixels 56 -> (11 7 8) -> conv 5 -> pool."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 11, 3)
        self.mix = nn.Linear(56, 56)
        self.conv2 = nn.Conv2d(11, 5, 1)

    def forward(self, x):
        x = self.conv1(x)
        b, c, h, w = x.shape
        x = self.mix(x.flatten(2)).reshape(b, c, h, w)
        return self.conv2(x).mean((2, 3))


class SqueezeSingleton(nn.Module):
    """3 -> conv 11 -> pool -> squeeze 11 -> fc 13 -> (13 1) -> conv1d 5 -> squeeze."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 11, 3)
        self.fc = nn.Linear(11, 13)
        self.head = nn.Conv1d(13, 5, 1)

    def forward(self, x):
        x = F.adaptive_avg_pool2d(self.conv(x), 1).squeeze(-1).squeeze(2)
        x = F.relu(self.fc(x)).unsqueeze(-1)
        return torch.squeeze(self.head(x))


class SqueezeChannel(nn.Module):
    """3 -> conv 1 -> squeeze (9 10) -> fc over 10: 11 -> fc 5: width 1 stays."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 1, 1)
        self.fc1 = nn.Linear(10, 11)
        self.fc2 = nn.Linear(11, 5)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(self.conv(x).squeeze(1)))).mean(1)


class Transposes(nn.Module):
    """3 -> fc 11 -> swap with time -> conv1d 13 -> swap -> fc 17 -> .mT -> conv1d 5."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 11)
        self.conv1 = nn.Conv1d(11, 13, 3, padding=1)
        self.fc2 = nn.Linear(13, 17)
        self.conv2 = nn.Conv1d(17, 5, 1)

    def forward(self, x):
        x = F.relu(self.conv1(self.fc1(x).transpose(1, 2))).swapaxes(-1, -2)
        return self.conv2(F.relu(self.fc2(x)).mT).sum(-1)


class Expand(nn.Module):
    """
    3 -> fc 11 -> (b 11 1 1) -> expand (b 11 4 5) -(cat)- (x, y) -> conv 13 -> fc 5

    The spatial broadcast decoder.
    """

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 11)
        self.conv = nn.Conv2d(13, 17, 3)
        self.head = nn.Linear(17, 5)

    def forward(self, x):
        b = x.shape[0]
        x = self.fc(x)[:, :, None, None].expand(-1, -1, 4, 5)
        ys, xs = torch.linspace(-1, 1, 4).double(), torch.linspace(-1, 1, 5).double()
        grid = torch.stack(torch.meshgrid(ys, xs, indexing="ij")).expand(b, 2, 4, 5)
        return self.head(F.relu(self.conv(torch.cat((x, grid), 1))).mean((2, 3)))


class Repeats(nn.Module):
    """3 -> fc 11 -> repeat 22 -> fc 13 -> interleave 39 -> fc 17 -> tile 34 -> fc 5."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 11)
        self.fc2 = nn.Linear(22, 13)
        self.fc3 = nn.Linear(39, 17)
        self.fc4 = nn.Linear(34, 5)

    def forward(self, x):
        x = torch.tanh(self.fc1(x)).repeat(1, 2)
        x = torch.tanh(self.fc2(x)).repeat_interleave(3, dim=1)
        return self.fc4(torch.tanh(self.fc3(x)).tile(2))


class Patchify(nn.Module):
    """3 -> conv 11 -> (b 4 2 5 2 11) -> 20 patches of 44 -> fc 13 -> fc 5."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 11, 3, padding=1)
        self.fc1 = nn.Linear(44, 13)
        self.fc2 = nn.Linear(13, 5)

    def forward(self, x):
        x = self.conv(x)
        b, c, h, w = x.shape
        x = x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 3, 5, 1)
        x = F.gelu(self.fc1(x.reshape(b, h * w // 4, 4 * c)))
        return self.fc2(x).mean(dim=1)


class BatchFold(nn.Module):
    """3 -> (b t) frames -> conv 11 -> pool -> (b t 11) -> max over t -> fc 5."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 11, 3)
        self.head = nn.Linear(11, 5)

    def forward(self, x):
        b, t = x.shape[:2]
        x = F.relu(self.conv(x.flatten(0, 1))).mean((2, 3))
        return self.head(x.unflatten(0, (b, t)).amax(1))


class HardCodedView(nn.Module):
    """3 -> conv 11 -> view(-1, 11 * 56) -> fc 13 -> view(-1, 13) -> fc 5."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 11, 3)
        self.fc1 = nn.Linear(616, 13)
        self.fc2 = nn.Linear(13, 5)

    def forward(self, x):
        x = F.relu(self.conv(x)).view(-1, 616)
        return self.fc2(F.relu(self.fc1(x)).view(-1, 13))


class HardCodedSplit(nn.Module):
    """3 -> fc 24 -> x[:, :11] * tanh(x[:, 13:]) -> fc 5: units 11 and 12 are unread."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 24)
        self.fc2 = nn.Linear(11, 5)

    def forward(self, x):
        x = self.fc1(x)
        return self.fc2(x[:, :11] * x[:, 13:].tanh())


class HardCodedScale(nn.Module):
    """3 -> fc 11 -> * ones(11) -> cat zeros(2) -> fc 5: constants know the width."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(3, 11)
        self.fc2 = nn.Linear(13, 5)

    def forward(self, x):
        x = self.fc1(x) * torch.linspace(0.5, 1.5, 11).double()
        return self.fc2(torch.cat((x, x.new_zeros(x.shape[0], 2)), 1))


VECTOR, SEQUENCE, IMAGE = floats(2, 3), floats(2, 9, 3), floats(2, 3, 9, 10)

ENTRIES = {
    "flatten": Entry(Flatten, IMAGE, expect=at_least(2)),
    "channels_last_flatten": Entry(ChannelsLastFlatten, IMAGE, expect=at_least(2)),
    "generator": Entry(Generator, VECTOR, expect=at_least(1)),
    "flatten_unflatten": Entry(FlattenUnflatten, IMAGE, expect=at_least(1)),
    "squeeze_singleton": Entry(SqueezeSingleton, IMAGE, expect=at_least(2)),
    "squeeze_channel": Entry(SqueezeChannel, IMAGE, expect=at_least(1)),
    "transposes": Entry(Transposes, SEQUENCE, expect=at_least(3)),
    "expand": Entry(Expand, VECTOR, expect=at_least(1)),
    "repeats": Entry(Repeats, VECTOR),
    "patchify": Entry(Patchify, floats(2, 3, 8, 10), expect=at_least(1)),
    "batch_fold": Entry(BatchFold, floats(2, 4, 3, 9, 10), expect=at_least(1)),
    "hard_coded_view": Entry(HardCodedView, IMAGE),
    "hard_coded_split": Entry(HardCodedSplit, VECTOR),
    "hard_coded_scale": Entry(HardCodedScale, VECTOR),
}

"""Convolutional networks: every convolution, residuals, published blocks."""

import torch
from torch import nn
from torch.nn import functional as F

from .entry import Entry, at_least, floats


class Conv1d(nn.Module):
    """3 -> conv1d 11 -> conv1d 13 (stride 2, dilation 2) -> last step -> fc 5."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(3, 11, 3, padding="same")
        self.conv2 = nn.Conv1d(11, 13, 3, stride=2, dilation=2)
        self.fc = nn.Linear(13, 5)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        return self.fc(x[:, :, -1])


class LeNet(nn.Module):
    """3 -> conv 11 -> pool -> conv 13 -> pool -> flatten 13*1*1 .. -> fc 17 -> fc 5."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 11, 3, padding=1)
        self.conv2 = nn.Conv2d(11, 13, 3, padding=1, padding_mode="circular")
        self.fc1 = nn.Linear(13 * 2 * 2, 17)
        self.fc2 = nn.Linear(17, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


class Conv3d(nn.Sequential):
    """3 -> conv3d 11 -> BN -> ReLU -> conv3d 13 -> pool -> flatten -> fc 5."""

    def __init__(self):
        super().__init__(
            nn.Conv3d(3, 11, (1, 3, 3)),
            nn.BatchNorm3d(11),
            nn.ReLU(),
            nn.Conv3d(11, 13, 2),
            nn.AdaptiveMaxPool3d((1, 1, 1)),
            nn.Flatten(),
            nn.Linear(13, 5),
        )


class Transposed(nn.Module):
    """3 -> convT2d 11 -> convT2d 13 (stride 2) -> row mean -> convT1d 17 -> fc 5."""

    def __init__(self):
        super().__init__()
        self.up1 = nn.ConvTranspose2d(3, 11, 2)
        self.up2 = nn.ConvTranspose2d(11, 13, 3, stride=2, output_padding=1)
        self.up3 = nn.ConvTranspose1d(13, 17, 2)
        self.fc = nn.Linear(17, 5)

    def forward(self, x):
        x = F.gelu(self.up2(F.gelu(self.up1(x)))).mean(2)
        return self.fc(self.up3(x).amax(-1))


class Transposed3d(nn.Module):
    """3 -> convT3d 11 -> ReLU -> conv3d 5 -> pool: a head without a linear layer."""

    def __init__(self):
        super().__init__()
        self.up = nn.ConvTranspose3d(3, 11, (1, 2, 2))
        self.head = nn.Conv3d(11, 5, 1)

    def forward(self, x):
        return self.head(F.relu(self.up(x))).mean((2, 3, 4))


class Grouped(nn.Module):
    """3 -> conv 12 -> conv 18 in 3 groups -> convT 24 in 2 groups -> pool -> fc 5."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 12, 3)
        self.grouped = nn.Conv2d(12, 18, 3, groups=3)
        self.transposed = nn.ConvTranspose2d(18, 24, 2, groups=2)
        self.fc = nn.Linear(24, 5)

    def forward(self, x):
        x = F.relu(self.grouped(F.relu(self.stem(x))))
        return self.fc(F.relu(self.transposed(x)).mean((2, 3)))


class Depthwise(nn.Module):
    """3 -> depthwise 6 (x2) -> pointwise 11 -> depthwise 11 -> pointwise 13 -> fc 5."""

    def __init__(self):
        super().__init__()
        self.multiplier = nn.Conv2d(3, 6, 3, groups=3)
        self.point1 = nn.Conv2d(6, 11, 1)
        self.depthwise = nn.Conv2d(11, 11, 3, padding=1, groups=11)
        self.point2 = nn.Conv2d(11, 13, 1, bias=False)
        self.fc = nn.Linear(13, 5)

    def forward(self, x):
        x = F.relu6(self.point1(self.multiplier(x)))
        x = F.relu6(self.point2(F.relu6(self.depthwise(x))))
        return self.fc(x.mean((2, 3)))


class DepthwiseMultiplier(nn.Sequential):
    """3 -> conv 11 -> depthwise 33 (3 per channel) -> conv 13 -> pool -> fc 5."""

    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 11, 3),
            nn.Conv2d(11, 33, 3, groups=11),
            nn.ReLU(),
            nn.Conv2d(33, 13, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(13, 5),
        )


class DeadFilters(nn.Module):
    """3 -> conv 11 -> BN -> conv 13 (zero padding) -> ReLU -> flatten -> fc 5.

    Filters 0 and 1 of `conv1` have zero weights; 0 still emits its bias, which the
    padding of `conv2` turns into a pattern that no single bias can replace.
    """

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 11, 3)
        self.bn = nn.BatchNorm2d(11)
        self.conv2 = nn.Conv2d(11, 13, 3, padding=1)
        self.fc = nn.Linear(13 * 7 * 8, 5)

    def forward(self, x):
        return self.fc(F.relu(self.conv2(self.bn(self.conv1(x)))).flatten(1))


@torch.no_grad()
def _kill_filters_(model):
    model.conv1.weight[:2] = 0
    model.conv1.bias[1] = model.bn.bias[1] = model.bn.running_mean[1] = 0
    model.conv2.weight[3] = 0
    model.conv2.bias[3] = 0.7


class BasicBlock(nn.Module):
    """
    x -+-> conv -> BN -> ReLU -> conv -> BN -(+)-> ReLU
       +-> [conv 1x1 -> BN] -----------------+
    """

    def __init__(self, width_in, width_mid, width_out, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(width_in, width_mid, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width_mid)
        self.conv2 = nn.Conv2d(width_mid, width_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width_out)
        self.downsample = None
        if stride != 1 or width_in != width_out:
            conv = nn.Conv2d(width_in, width_out, 1, stride, bias=False)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(width_out))

    def forward(self, x):
        identity = x if self.downsample is None else self.downsample(x)
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        out += identity
        return F.relu(out)


class ResNet(nn.Module):
    """3 -> conv 11 -> block(13) 11 -> block(17) 19 -> block(23) 19 -> pool -> fc 5."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 11, 3, padding=1)
        self.layer1 = BasicBlock(11, 13, 11)
        self.layer2 = nn.Sequential(BasicBlock(11, 17, 19, 2), BasicBlock(19, 23, 19))
        self.fc = nn.Linear(19, 5)

    def forward(self, x):
        x = self.layer2(self.layer1(self.stem(x)))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class OptionA(nn.Module):
    """
    3 -> conv 11 -+-> conv 19 (stride 2) ----------------(+)-> pool -> fc 5
                  +-> x[:, :, ::2, ::2] -> pad 4+11+4 ----+
    """

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 11, 3, padding=1)
        self.conv = nn.Conv2d(11, 19, 3, stride=2, padding=1)
        self.fc = nn.Linear(19, 5)

    def forward(self, x):
        x = F.relu(self.stem(x))
        shortcut = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 4, 4), "constant", 0)
        return self.fc(F.relu(self.conv(x) + shortcut).mean((2, 3)))


class InputResidual(nn.Module):
    """
    11 -+-> conv 13 -> ReLU -> conv 11 -(+)-> pool -> fc 5     (11 is the input's width)
        +--------------------------------+
    """

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(11, 13, 3, padding=1)
        self.conv2 = nn.Conv2d(13, 11, 3, padding=1)
        self.fc = nn.Linear(11, 5)

    def forward(self, x):
        x = x + self.conv2(F.relu(self.conv1(x)))
        return self.fc(x.mean((-1, -2)))


class InvertedResidual(nn.Module):
    """
    3 -> conv 11 -+-> 1x1 23 -> dw 23 -+-----------(*)-> 1x1 11 -(+)-> pool -> fc 5
                  |                    +-> SE (7) --+             |
                  +-----------------------------------------------+
    """

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 11, 3)
        self.expand = nn.Sequential(nn.Conv2d(11, 23, 1), nn.BatchNorm2d(23), nn.SiLU())
        depthwise = nn.Conv2d(23, 23, 3, padding=1, groups=23, bias=False)
        self.depthwise = nn.Sequential(depthwise, nn.BatchNorm2d(23), nn.Hardswish())
        self.reduce = nn.Conv2d(23, 7, 1)
        self.excite = nn.Conv2d(7, 23, 1)
        self.project = nn.Conv2d(23, 11, 1)
        self.fc = nn.Linear(11, 5)

    def forward(self, x):
        x = self.stem(x)
        y = self.depthwise(self.expand(x))
        scale = self.reduce(y.mean((2, 3), keepdim=True))
        y = y * F.hardsigmoid(self.excite(F.relu(scale)))
        return self.fc((x + self.project(y)).mean((2, 3)))


class ConvNeXt(nn.Module):
    """
    3 -> conv 11 -+-> dw 7x7 -> NHWC -> LN -> fc 23 -> fc 11 -> * gamma -(+)-> fc 5
                  +------------------------------------------------------+
    """

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 11, 2, stride=2)
        self.dwconv = nn.Conv2d(11, 11, 7, padding=3, groups=11)
        self.norm = nn.LayerNorm(11)
        self.pwconv1 = nn.Linear(11, 23)
        self.pwconv2 = nn.Linear(23, 11)
        self.gamma = nn.Parameter(torch.ones(11))
        self.head = nn.Linear(11, 5)

    def forward(self, x):
        x = self.stem(x)
        y = self.norm(self.dwconv(x).permute(0, 2, 3, 1))
        y = self.gamma * self.pwconv2(F.gelu(self.pwconv1(y)))
        x = x + y.permute(0, 3, 1, 2)
        return self.head(x.mean([-2, -1]))


class ConditionedStack(nn.Module):
    """
    3 -> conv 7 -+-> conv 14 -> tanh * sigmoid -> conv 14 -> [on 7 | sum 7], thrice -> 5
    4 -> conv 42 -+ each layer reads its own 14 of these

    As in WaveNets that make voices: the first layer reads from `0 * 14` on.
    """

    def __init__(self, width=7, layers=3):
        super().__init__()
        self.width, self.layers = width, layers
        self.start, self.end = nn.Conv1d(3, width, 1), nn.Conv1d(width, 5, 1)
        self.condition = nn.Conv1d(4, 2 * width * layers, 1)
        self.inside = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 3, padding=2**i, dilation=2**i)
            for i in range(layers)
        )
        self.outside = nn.ModuleList(
            nn.Conv1d(width, 2 * width, 1) for _ in range(layers)
        )

    def forward(self, audio, voice):
        audio, voice = self.start(audio), self.condition(voice)
        total = torch.zeros_like(audio)
        for i in range(self.layers):
            offset = i * 2 * self.width
            both = self.inside[i](audio) + voice[:, offset : offset + 2 * self.width]
            gated = both[:, : self.width].tanh() * both[:, self.width :].sigmoid()
            both = self.outside[i](gated)
            audio = audio + both[:, : self.width]
            total = total + both[:, self.width :]
        return self.end(total)


def audio_and_voice():
    return tuple(torch.randn(2, n, 9, dtype=torch.float64) for n in (3, 4))


IMAGE, VIDEO = floats(2, 3, 9, 10), floats(2, 3, 4, 5, 6)

ENTRIES = {
    "conditioned_stack": Entry(ConditionedStack, audio_and_voice, expect=at_least(1)),
    "conv1d": Entry(Conv1d, floats(2, 3, 17), expect=at_least(2)),
    "lenet": Entry(LeNet, IMAGE, expect=at_least(3)),
    "conv3d": Entry(Conv3d, VIDEO, expect=at_least(2)),
    "transposed": Entry(Transposed, IMAGE, expect=at_least(3)),
    "transposed3d": Entry(Transposed3d, VIDEO, expect=at_least(1)),
    "grouped": Entry(Grouped, IMAGE),
    "depthwise": Entry(Depthwise, IMAGE, expect=at_least(2)),
    "depthwise_multiplier": Entry(DepthwiseMultiplier, IMAGE, expect=at_least(1)),
    "dead_filters": Entry(
        DeadFilters, IMAGE, expect=at_least(2), prepare=_kill_filters_
    ),
    "resnet": Entry(ResNet, IMAGE, expect=at_least(5)),
    "option_a": Entry(OptionA, IMAGE),
    "input_residual": Entry(InputResidual, floats(2, 11, 9, 10), expect=at_least(1)),
    "inverted_residual": Entry(InvertedResidual, IMAGE, expect=at_least(3)),
    "convnext": Entry(ConvNeXt, IMAGE, expect=at_least(1)),
}

"""Operations over the channel axis that couple all units: nothing may be cut."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from .entry import FROZEN, Entry, floats


class Coupled(nn.Module):
    """3 -> fc 11 -> mix(11 -> 11) -> fc 5."""

    def __init__(self, mix: Callable[[Tensor], Tensor]):
        super().__init__()
        self.fc1 = nn.Linear(3, 11)
        self.mix = mix
        self.fc2 = nn.Linear(11, 5)

    def forward(self, x):
        return self.fc2(self.mix(self.fc1(x)))


def centre(x: Tensor) -> Tensor:
    return x - x.mean(-1, keepdim=True)


def standardise(x: Tensor) -> Tensor:
    return (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)


def hard_attention(x: Tensor) -> Tensor:
    winner = x.argmax(dim=-1, keepdim=True)
    return torch.where(winner == torch.arange(11), x, 0.1 * x)


def top_seven(x: Tensor) -> Tensor:
    values, indices = x.topk(7, dim=-1)
    return torch.zeros_like(x).scatter(-1, indices, values)


def ranked(x: Tensor) -> Tensor:
    return x.sort(dim=-1).values


def mix_frequencies(x: Tensor) -> Tensor:
    return torch.fft.rfft(x, dim=-1).real.repeat_interleave(2, -1)[:, :11]


class ChannelMean(nn.Module):
    """
    3 -> conv 11 -> [mean over channels, max over channels] -> conv 5 -> pool

    The spatial attention of CBAM reads statistics of all channels.
    """

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 11, 3)
        self.conv2 = nn.Conv2d(2, 5, 3)

    def forward(self, x):
        x = self.conv1(x)
        pooled = [x.mean(1, keepdim=True), x.amax(1, keepdim=True)]
        return self.conv2(torch.cat(pooled, dim=1)).mean((2, 3))


VECTOR, IMAGE = floats(2, 3), floats(2, 3, 9, 10)


def _coupled(mix: Callable[[Tensor], Tensor]) -> Entry:
    return Entry(lambda: Coupled(mix), VECTOR, expect=FROZEN)


ENTRIES = {
    "channel_mean": Entry(ChannelMean, IMAGE, expect=FROZEN),
    "centre": _coupled(centre),
    "standardise": _coupled(standardise),
    "softmax_over_channels": _coupled(lambda x: x.softmax(-1)),
    "log_softmax_over_channels": _coupled(lambda x: x.log_softmax(1)),
    "argmax_over_channels": _coupled(hard_attention),
    "topk_over_channels": _coupled(top_seven),
    "sort_over_channels": _coupled(ranked),
    "cumsum_over_channels": _coupled(lambda x: x.cumsum(-1)),
    "roll_over_channels": _coupled(lambda x: x.roll(3, dims=-1)),
    "fft_over_channels": _coupled(mix_frequencies),
}

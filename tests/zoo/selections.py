"""Networks in which values decide how many rows a layer sees."""

import torch
import torch.nn.functional as F
from torch import nn

from .entry import Entry, at_least, floats


class MaskedTokens(nn.Module):
    """3 -> fc 11 -> the tokens that a mask over two axes picks -> fc 7 -> fc 5."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 11), nn.Linear(11, 7)
        self.head = nn.Linear(7, 5)

    def forward(self, x, mask):
        return self.head(F.relu(self.fc2(F.relu(self.fc1(x))[mask])))


class HiddenTokens(nn.Module):
    """3 -> fc 11, a learned vector where a mask says so -> fc 7 -> fc 5."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 11), nn.Linear(11, 7)
        self.head = nn.Linear(7, 5)
        self.hidden = nn.Parameter(torch.zeros(1, 1, 11))

    def forward(self, x, mask):
        h = F.relu(self.fc1(x)).clone()
        h[mask] = self.hidden
        return self.head(F.relu(self.fc2(h)))


class FilledUnits(nn.Module):
    """3 -> fc 11, numbers where masks over tokens and units say so -> fc 7 -> fc 5."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 11), nn.Linear(11, 7)
        self.head = nn.Linear(7, 5)

    def forward(self, x, mask):
        h = self.fc1(x).clone()
        h[h < 0] = -0.1
        h[:, :, h[0, 0] > 1] = 1.0
        h[mask] = 0.0
        return self.head(F.relu(self.fc2(h)))


class RoutedExperts(nn.Module):
    """3 -> fc 11 -> for each row one of two experts of 13 and 17, added -> fc 5.

    The first expert's rows are picked and written by a mask, the second's by number.
    """

    def __init__(self):
        super().__init__()
        self.fc, self.router = nn.Linear(3, 11), nn.Linear(3, 1)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(11, width), nn.ReLU(), nn.Linear(width, 11))
            for width in (13, 17)
        )
        self.head = nn.Linear(11, 5)

    def forward(self, x):
        h, first = F.relu(self.fc(x)), self.router(x).squeeze(-1) > 0
        added = torch.zeros_like(h)
        added[first] = self.experts[0](h[first])
        rest = torch.where(~first)[0]
        added = added.index_add(0, rest, self.experts[1](h.index_select(0, rest)))
        return self.head(h + added)


class RepeatedRows(nn.Module):
    """3 -> fc 11 -> each row as often as asked -> fc 7 -> fc 5."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 11), nn.Linear(11, 7)
        self.head = nn.Linear(7, 5)

    def forward(self, x, times):
        rows = F.relu(self.fc1(x)).repeat_interleave(times, 0)
        return self.head(F.relu(self.fc2(rows)))


def _tokens_and_mask():
    mask = torch.tensor([[True, False, True, True], [False, False, True, False]])
    return torch.randn(2, 4, 3, dtype=torch.float64), mask


def _rows_and_times():
    return torch.randn(4, 3, dtype=torch.float64), torch.tensor([2, 0, 1, 3])


ENTRIES = {
    "masked_tokens": Entry(MaskedTokens, _tokens_and_mask, expect=at_least(2)),
    "hidden_tokens": Entry(HiddenTokens, _tokens_and_mask, expect=at_least(2)),
    "filled_units": Entry(FilledUnits, _tokens_and_mask, expect=at_least(2)),
    "routed_experts": Entry(RoutedExperts, floats(5, 3), expect=at_least(3)),
    "repeated_rows": Entry(RepeatedRows, _rows_and_times, expect=at_least(2)),
}

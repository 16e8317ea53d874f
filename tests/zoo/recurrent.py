"""Recurrent networks: fused layers and cells in a loop."""

import torch
from torch import nn

from .entry import Entry, at_least, floats, tokens


class LSTMClassifier(nn.Module):
    """tokens 23 -> embedding 11 -> LSTM 13 -> last step -> fc 5."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(23, 11)
        self.lstm = nn.LSTM(11, 13, batch_first=True)
        self.fc = nn.Linear(13, 5)

    def forward(self, ids):
        out, _ = self.lstm(self.embedding(ids))
        return self.fc(out[:, -1])


class GRUTagger(nn.Module):
    """3 -> fc 11 -> GRU 13 -> fc 17 -> fc 5 at every step, sequence first."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(3, 11)
        self.gru = nn.GRU(11, 13)
        self.hidden, self.fc = nn.Linear(13, 17), nn.Linear(17, 5)

    def forward(self, x):
        out, _ = self.gru(self.stem(x).transpose(0, 1))
        return self.fc(self.hidden(out).relu()).transpose(0, 1)


class DeepBidirectional(nn.Module):
    """3 -> 2-layer bidirectional LSTM 11 -> final states of both directions -> fc 5."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 11, 2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(22, 5)

    def forward(self, x):
        _, (state, _) = self.lstm(x)
        return self.fc(torch.cat((state[-2], state[-1]), dim=-1))


class Projected(nn.Module):
    """3 -> fc 11 -> LSTM 13 projected to 7 -> mean -> fc 5."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(3, 11)
        self.lstm = nn.LSTM(11, 13, proj_size=7, batch_first=True)
        self.fc = nn.Linear(7, 5)

    def forward(self, x):
        return self.fc(self.lstm(self.stem(x))[0].mean(1))


class Elman(nn.Module):
    """3 -> RNN 11 -> RNN 13 (relu) -> last state -> fc 5."""

    def __init__(self):
        super().__init__()
        self.rnn1 = nn.RNN(3, 11, batch_first=True)
        self.rnn2 = nn.RNN(11, 13, batch_first=True, nonlinearity="relu")
        self.fc = nn.Linear(13, 5)

    def forward(self, x):
        _, state = self.rnn2(self.rnn1(x)[0])
        return self.fc(state.squeeze(0))


class Cells(nn.Module):
    """3 -> GRU cell 11 -> LSTM cell 13, step by step -> last state -> fc 5."""

    def __init__(self):
        super().__init__()
        self.lower, self.upper = nn.GRUCell(3, 11), nn.LSTMCell(11, 13)
        self.fc = nn.Linear(13, 5)

    def forward(self, x):
        lower = x.new_zeros(x.shape[0], self.lower.hidden_size)
        upper = None
        for step in x.unbind(1):
            lower = self.lower(step, lower)
            upper = self.upper(lower, upper)
        return self.fc(upper[0])


class LearnedState(nn.Module):
    """h0(11), 3 -> h = tanh(fc(x) + fc(h)), 3 steps of one shared layer -> fc 5."""

    def __init__(self):
        super().__init__()
        self.initial = nn.Parameter(torch.empty(1, 11))
        self.read, self.recur = nn.Linear(3, 11), nn.Linear(11, 11, bias=False)
        self.fc = nn.Linear(11, 5)

    def forward(self, x):
        state = self.initial.expand(x.shape[0], -1)
        for step in range(3):
            state = torch.tanh(self.read(x[:, step]) + self.recur(state))
        return self.fc(state)


SEQUENCE = floats(2, 4, 3)

ENTRIES = {
    "lstm": Entry(LSTMClassifier, tokens(23, 2, 4)),
    "gru": Entry(GRUTagger, SEQUENCE, expect=at_least(1)),
    "deep_bidirectional": Entry(DeepBidirectional, SEQUENCE),
    "projected_lstm": Entry(Projected, SEQUENCE),
    "elman": Entry(Elman, SEQUENCE),
    "cells": Entry(Cells, SEQUENCE),
    "learned_state": Entry(LearnedState, SEQUENCE, expect=at_least(1)),
}

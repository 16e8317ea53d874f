"""Networks that write into places of tensors: graphs whose nodes send, memories."""

import torch
import torch.nn.functional as F
from torch import nn

from .entry import Entry, at_least, floats

SENDERS = torch.tensor([0, 1, 2, 3, 4, 0, 2])
RECEIVERS = torch.tensor([1, 2, 0, 4, 3, 3, 1])


class Edges(nn.Module):
    """Seven edges between five nodes."""

    def __init__(self):
        super().__init__()
        self.register_buffer("senders", SENDERS)
        self.register_buffer("receivers", RECEIVERS)

    def along_edges(self, x):
        """For each edge, and each feature of it, the node that receives."""
        return self.receivers.unsqueeze(-1).expand(-1, x.shape[1])


class GraphConvolution(Edges):
    """3 -> fc 11 -> sum over neighbours (index_add) -> fc 13 -> the same -> fc 5."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 11), nn.Linear(11, 13)
        self.head = nn.Linear(13, 5)

    def forward(self, nodes):
        for layer in (self.fc1, self.fc2):
            x = layer(nodes)
            nodes = F.relu(x.index_add(0, self.receivers, x[self.senders], alpha=0.5))
        return self.head(nodes)


class GraphSage(Edges):
    """3 -> fc 11 -> own | mean of neighbours (scatter) -> fc 13, + maximum -> fc 5."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 11), nn.Linear(22, 13)
        self.head = nn.Linear(13, 5)

    def forward(self, nodes):
        x = F.relu(self.fc1(nodes))
        places = self.along_edges(x)
        total = torch.zeros_like(x).scatter_add_(0, places, x[self.senders])
        degrees = x.new_ones(len(SENDERS))
        degrees = x.new_zeros(len(x)).index_add_(0, self.receivers, degrees)
        x = torch.cat([x, total / degrees.clamp(min=1).unsqueeze(-1)], 1)
        x = F.relu(self.fc2(x))
        places, sent = self.along_edges(x), x[self.senders]
        return self.head(x + x.scatter_reduce(0, places, sent, "amax"))


class GraphAttention(Edges):
    """3 -> fc (3 heads x 7), softmax over the edges of each node -> fc 5."""

    def __init__(self):
        super().__init__()
        self.values, self.scores = nn.Linear(3, 21), nn.Linear(3, 3)
        self.head = nn.Linear(21, 5)

    def forward(self, nodes):
        values = self.values(nodes).unflatten(1, (3, -1))[self.senders]
        scores = self.scores(nodes)[self.senders].exp()
        total = torch.zeros(5, 3, dtype=scores.dtype)
        total = total.index_add(0, self.receivers, scores)[self.receivers]
        sent = values * (scores / total).unsqueeze(-1)
        out = sent.new_zeros(5, *sent.shape[1:])
        out = out.index_put((self.receivers,), sent, accumulate=True)
        return self.head(F.relu(out.flatten(1)))


class Memory(nn.Module):
    """3 -> fc 11; rows are overwritten in four ways -> fc 5."""

    def __init__(self):
        super().__init__()
        self.write, self.read = nn.Linear(3, 11), nn.Linear(11, 5)
        self.register_buffer("rows", torch.tensor([2, 0]))

    def forward(self, x):
        new = F.relu(self.write(x))
        memory = torch.zeros_like(new).index_copy(0, self.rows, new[:2])
        memory = memory.index_put((self.rows,), new[3:], accumulate=False)
        memory = torch.slice_scatter(memory, new[1:3], 0, 2, 4)
        memory = torch.select_scatter(memory, new[0], 0, 4)
        places = self.rows.unsqueeze(-1).expand(-1, new.shape[1])
        memory = memory.scatter(0, places, new[2:4]).index_fill(0, self.rows[1:], 0.0)
        return self.read(memory)


NODES = floats(5, 3)

ENTRIES = {
    "graph_convolution": Entry(GraphConvolution, NODES, expect=at_least(2)),
    "graph_sage": Entry(GraphSage, NODES, expect=at_least(2)),
    "graph_attention": Entry(GraphAttention, NODES, expect=at_least(1)),
    "memory": Entry(Memory, NODES, expect=at_least(1)),
}

"""How models are called and what they share: keywords, dicts, reuse, tied weights."""

import torch
from torch import nn
from torch.nn import functional as F

from .entry import Entry, at_least, floats, tokens


class KeywordInputs(nn.Module):
    """
    input_ids -> embedding 11 -> masked mean -(cat 24)-> fc 17 -> fc 5
    features  -> fc 13 ------------------------+
    """

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(23, 11, padding_idx=0)
        self.project = nn.Linear(3, 13)
        self.fc1, self.fc2 = nn.Linear(24, 17), nn.Linear(17, 5)

    def forward(self, input_ids, *, attention_mask, features=None):
        mask = attention_mask.unsqueeze(-1)
        text = (self.embedding(input_ids) * mask).sum(1) / mask.sum(1)
        joined = torch.cat((text, self.project(features)), dim=-1)
        return self.fc2(F.relu(self.fc1(joined)))


def keyword_inputs():
    return {
        "input_ids": torch.randint(23, (2, 8)),
        "attention_mask": (torch.arange(8) < torch.tensor([[5], [8]])).long(),
        "features": torch.randn(2, 3, dtype=torch.float64),
    }


class NestedInputs(nn.Module):
    """{a: 3, b: [2, 7]} -> one fc 11 each -> (+) -> fc 5."""

    def __init__(self):
        super().__init__()
        self.encoders = nn.ModuleDict(
            {"a": nn.Linear(3, 11), "b0": nn.Linear(2, 11), "b1": nn.Linear(7, 11)}
        )
        self.head = nn.Linear(11, 5)

    def forward(self, batch):
        flat = {"a": batch["a"], "b0": batch["b"][0], "b1": batch["b"][1]}
        hidden = sum(self.encoders[name](value) for name, value in flat.items())
        return self.head(F.relu(hidden))


def nested_inputs():
    a, b0, b1 = (torch.randn(2, size, dtype=torch.float64) for size in (3, 2, 7))
    return ({"a": a, "b": [b0, b1]},)


class ManyOutputs(nn.Module):
    """3 -> conv 11 -> conv 13 -+-> {logits: fc 5, boxes: (conv 4, its mean)}."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 11, 3), nn.Conv2d(11, 13, 3)
        self.classify, self.regress = nn.Linear(13, 5), nn.Conv2d(13, 4, 1)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        boxes = self.regress(x)
        logits = self.classify(x.mean((2, 3)))
        return {"logits": logits, "boxes": (boxes, boxes.mean())}


class ReturnsFeatures(nn.Module):
    """3 -> fc 11 -> fc 13 -> fc 5, returning (logits, the 11): 11 is an output."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(3, 11), nn.Linear(11, 13)
        self.fc3 = nn.Linear(13, 5)

    def forward(self, x):
        features = F.relu(self.fc1(x))
        return self.fc3(F.relu(self.fc2(features))), features


class Siamese(nn.Module):
    """
    a -> encoder 11 -> 13 -(|a - b|)-> fc 5
    b -> encoder 11 -> 13 --+                  one encoder, called twice
    """

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(3, 11), nn.ReLU(), nn.Linear(11, 13))
        self.head = nn.Linear(13, 5)

    def forward(self, a, b):
        return self.head((self.encoder(a) - self.encoder(b)).abs())


def pair_of_vectors():
    return torch.randn(2, 2, 3, dtype=torch.float64).unbind(0)


class TwoTowers(nn.Module):
    """a -> fc 11 -> 13, b -> fc 7 -> 13; the cosine of the two is what comes out."""

    def __init__(self):
        super().__init__()
        self.left = nn.Sequential(nn.Linear(3, 11), nn.ReLU(), nn.Linear(11, 13))
        self.right = nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 13))

    def forward(self, a, b):
        return F.cosine_similarity(self.left(a), self.right(b))


class Prototypes(nn.Module):
    """3 -> fc 11 -> distances from seven points -> fc 5."""

    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(3, 11), nn.Linear(7, 5)
        self.points = nn.Parameter(torch.randn(7, 11))

    def forward(self, x):
        return self.head((-torch.cdist(self.encoder(x), self.points).square()).exp())


class AuxiliaryHead(nn.Module):
    """3 -> conv 11 -+-> conv 13 -> pool -> fc 5
    +-> pool -> fc 5, in training only."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 11, 3), nn.Conv2d(11, 13, 3)
        self.head, self.aux = nn.Linear(13, 5), nn.Linear(11, 5)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        logits = self.head(F.relu(self.conv2(x)).mean((2, 3)))
        return (logits, self.aux(x.mean((2, 3)))) if self.training else logits


class ReusedLayer(nn.Module):
    """3 -> fc 11 -> [fc 11 -> tanh] x 2, the same layer -> fc 5."""

    def __init__(self):
        super().__init__()
        self.stem, self.shared = nn.Linear(3, 11), nn.Linear(11, 11)
        self.act, self.head = nn.Tanh(), nn.Linear(11, 5)

    def forward(self, x):
        x = self.act(self.shared(self.stem(x)))
        return self.head(self.act(self.shared(x)))


class ReusedUnderTwoNames(nn.Module):
    """3 -> fc 13 -> [fc 13 -> relu] x 2 -> fc 5; the layer is in the list twice."""

    def __init__(self):
        super().__init__()
        shared, act = nn.Linear(13, 13), nn.ReLU()
        layers = nn.Linear(3, 13), act, shared, act, shared, act, nn.Linear(13, 5)
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


class TiedAutoencoder(nn.Module):
    """7 -> w(11 7) -> ReLU -> v(13 11) -> ReLU -> v^T -> ReLU -> w^T -> 7."""

    def __init__(self):
        super().__init__()
        self.outer, self.inner = nn.Linear(7, 11), nn.Linear(11, 13)
        self.inner_bias = nn.Parameter(torch.empty(11))
        self.outer_bias = nn.Parameter(torch.empty(7))

    def forward(self, x):
        code = F.relu(self.inner(F.relu(self.outer(x))))
        x = F.relu(F.linear(code, self.inner.weight.t(), self.inner_bias))
        return F.linear(x, self.outer.weight.t(), self.outer_bias)


class TiedConvs(nn.Module):
    """1 -> conv 5 -> conv 7 -> its transpose 5 -> that of the first -> 1."""

    def __init__(self):
        super().__init__()
        self.outer, self.inner = nn.Conv2d(1, 5, 3), nn.Conv2d(5, 7, 3)
        self.bias = nn.Parameter(torch.empty(5))

    def forward(self, x):
        code = F.relu(self.inner(F.relu(self.outer(x))))
        x = F.relu(F.conv_transpose2d(code, self.inner.weight, self.bias))
        return F.conv_transpose2d(x, self.outer.weight)


class TiedHead(nn.Module):
    """tokens 23 -> embedding 11 -> fc 13 -> fc 11 -> embedding^T 23."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(23, 11)
        self.fc1, self.fc2 = nn.Linear(11, 13), nn.Linear(13, 11)
        self.bias = nn.Parameter(torch.empty(23))

    def forward(self, ids):
        x = self.fc2(F.relu(self.fc1(self.embedding(ids))))
        return x @ self.embedding.weight.t() + self.bias


class BagOfWords(nn.Module):
    """tokens 23 -> mean of embeddings 11 -> fc 13 -> fc 5."""

    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(23, 11, mode="mean")
        self.fc1, self.fc2 = nn.Linear(11, 13), nn.Linear(13, 5)

    def forward(self, ids):
        return self.fc2(F.relu(self.fc1(self.bag(ids))))


class Ensemble(nn.Module):
    """3 -> 4 members at once: einsum w(4 3 11) -> ReLU -> baddbmm w(4 11 5) -> mean."""

    def __init__(self):
        super().__init__()
        self.weight1 = nn.Parameter(torch.empty(4, 3, 11))
        self.weight2 = nn.Parameter(torch.empty(4, 11, 5))
        self.bias2 = nn.Parameter(torch.empty(4, 1, 5))

    def forward(self, x):
        hidden = F.relu(torch.einsum("bi,mio->mbo", x, self.weight1))
        return torch.baddbmm(self.bias2, hidden, self.weight2).mean(0)


class UnusedLayer(nn.Module):
    """3 -> fc 11 -> fc 5; `unused` 11 -> 13 is never called."""

    def __init__(self):
        super().__init__()
        self.fc1, self.unused = nn.Linear(3, 11), nn.Linear(11, 13)
        self.fc2 = nn.Linear(11, 5)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


VECTOR, IMAGE = floats(2, 3), floats(2, 3, 9, 10)

ENTRIES = {
    "two_towers": Entry(TwoTowers, pair_of_vectors, expect=at_least(3)),
    "prototypes": Entry(Prototypes, VECTOR, expect=at_least(1)),
    "keyword_inputs": Entry(KeywordInputs, keyword_inputs, expect=at_least(3)),
    "nested_inputs": Entry(NestedInputs, nested_inputs, expect=at_least(1)),
    "many_outputs": Entry(ManyOutputs, IMAGE, expect=at_least(2)),
    "returns_features": Entry(ReturnsFeatures, VECTOR, expect=at_least(1)),
    "siamese": Entry(Siamese, pair_of_vectors, expect=at_least(2)),
    "auxiliary_head": Entry(AuxiliaryHead, IMAGE),
    "reused_layer": Entry(ReusedLayer, VECTOR, expect=at_least(1)),
    "reused_under_two_names": Entry(ReusedUnderTwoNames, VECTOR, expect=at_least(1)),
    "tied_autoencoder": Entry(TiedAutoencoder, floats(2, 7), expect=at_least(2)),
    "tied_convs": Entry(TiedConvs, floats(2, 1, 9, 9), expect=at_least(2)),
    "tied_head": Entry(TiedHead, tokens(23, 2, 8), expect=at_least(2)),
    "bag_of_words": Entry(BagOfWords, tokens(23, 2, 8), expect=at_least(2)),
    "ensemble": Entry(Ensemble, VECTOR, expect=at_least(1)),
    "unused_layer": Entry(UnusedLayer, VECTOR),
}

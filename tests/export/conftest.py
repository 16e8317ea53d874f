import pytest
import torch
from torch import nn

import diffprune as dp
from benchmarks.resnets import resnet18
from paper.models.lenet5 import LeNet5


class Reader(nn.Module):
    """tokens 23 -> embedding 11 -> LSTM 13 -> last step -> fc 5."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(23, 11)
        self.rnn = nn.LSTM(11, 13, batch_first=True)
        self.fc = nn.Linear(13, 5)

    def forward(self, ids):
        return {"logits": self.fc(self.rnn(self.embedding(ids))[0][:, -1])}


class Transformer(nn.Module):
    """12 -> 2 encoder layers of 4 heads and 17 hidden units -> mean -> fc 5."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(12, 4, 17, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.fc = nn.Linear(12, 5)

    def forward(self, x):
        features = self.encoder(x)
        return self.fc(features.mean(1)), features


def third(model, inputs):
    """Without a third of its units."""
    groups = dp.find_groups(model, inputs)
    masks = {g.name: torch.arange(g.size) % 3 != 1 for g in groups}
    return dp.remove(model, inputs, keep=masks), inputs


def lenet5():
    """Pruned by gates in the model; what is left of one chooses features."""
    images = torch.rand(3, 1, 28, 28)
    pruner = dp.Pruner(
        LeNet5(dp.Gate), images, remove_every=lambda _: False, strength=1e-5
    )
    for gate in pruner.gates.values():
        gate.logits.data[::3] = -2.0
    return pruner.finalize(), images


def resnet():
    return third(resnet18(num_classes=7, width=8), torch.rand(1, 3, 32, 32))


def lstm():
    return third(Reader(), torch.randint(23, (2, 7)))


def transformer():
    return third(Transformer(), {"x": torch.rand(2, 6, 12)})


MODELS = {f.__name__: f for f in (lenet5, resnet, lstm, transformer)}


@pytest.fixture(scope="session")
def built():
    return {}


@pytest.fixture
def case(request, built):
    """A pruned model and inputs for it, made once."""
    name = request.param
    if name not in built:
        torch.manual_seed(0)
        built[name] = MODELS[name]()
    return built[name]

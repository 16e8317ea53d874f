"""What fails half-way leaves the same objects in the same places."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from diffprune._core.snapshot import all_or_nothing


class Twice(nn.Module):
    def forward(self, x):
        return 2 * x


def wreck_(model, optimizer):
    model[0].weight = nn.Parameter(torch.ones(1, 1))
    model[0].in_features = 99
    del model._modules["1"]
    model.add_module("more", nn.Linear(1, 1))
    model.note = "text"
    model[0].register_forward_hook(lambda *_: None)
    model.lstm.weight_ih_l0 = nn.Parameter(torch.ones(1))
    parametrize.register_parametrization(model.last, "weight", Twice())
    optimizer.param_groups[0]["params"].pop()
    optimizer.param_groups[0]["lr"] = 7
    optimizer.state.clear()
    raise KeyboardInterrupt


@pytest.fixture
def model():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    model.lstm, model.last = nn.LSTM(2, 3), nn.Linear(2, 2)
    return model


def test_everything_is_put_back(model):
    optimizer = torch.optim.Adam(model.parameters())
    sum(p.sum() for p in model.parameters()).backward()
    optimizer.step()
    tensors = {name: id(p) for name, p in model.named_parameters()}
    flat = [*map(id, model.lstm._flat_weights)]
    state = {id(p): s["exp_avg"] for p, s in optimizer.state.items()}
    with pytest.raises(KeyboardInterrupt), all_or_nothing(model, optimizer):
        wreck_(model, optimizer)
    assert {name: id(p) for name, p in model.named_parameters()} == tensors
    assert [*map(id, model.lstm._flat_weights)] == flat
    assert type(model.last) is nn.Linear
    assert model[0].in_features == 2
    assert not hasattr(model, "note")
    assert not model[0]._forward_hooks
    assert [type(m) for m in model[:2]] == [nn.Linear, nn.BatchNorm1d]
    group = optimizer.param_groups[0]
    assert (len(group["params"]), group["lr"]) == (len(tensors), 1e-3)
    assert {id(p): s["exp_avg"] for p, s in optimizer.state.items()} == state


def test_numbers_are_put_back_where_asked(model):
    weight, value = model[0].weight, model[0].weight.detach().clone()
    with pytest.raises(AttributeError), all_or_nothing(model, overwritten=[weight]):
        weight.data.zero_().what()
    assert torch.equal(weight, value)


def test_what_succeeds_stays(model):
    with all_or_nothing(model):
        model.note = 3
    assert model.note == 3

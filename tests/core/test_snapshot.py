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


def test_what_is_lent_ends_in_the_memory_that_tensors_have(model):
    weight, new = model[0].weight, torch.rand(3, 2)
    address = weight.data_ptr()
    with all_or_nothing(model) as lend_:
        lend_({weight: new})
        assert weight.data_ptr() == new.data_ptr()
    assert weight.data_ptr() == address
    assert torch.equal(weight, new)
    assert weight.requires_grad


def test_a_loan_is_given_back_if_something_raises(model):
    weight, value = model[0].weight, model[0].weight.detach().clone()
    address = weight.data_ptr()
    with pytest.raises(AttributeError), all_or_nothing(model) as lend_:
        lend_({weight: torch.rand(3, 2)}).what()
    assert weight.data_ptr() == address
    assert torch.equal(weight, value)


def test_a_tensor_that_was_given_other_memory_keeps_it(model):
    weight, other = model[0].weight, torch.rand(5, 2)
    with all_or_nothing(model) as lend_:
        lend_({weight: torch.rand(3, 2)})
        weight.data = other
    assert torch.equal(weight, other)


def test_an_older_backward_notices_that_numbers_changed(model):
    weight = model[0].weight
    loss = (weight**2).sum()
    with all_or_nothing(model) as lend_:
        lend_({weight: torch.rand(3, 2)})
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("mode", [torch.inference_mode, lambda: torch.device("meta")])
def test_modes_of_torch_do_not_matter(model, mode):
    weight, new = model[0].weight, torch.rand(3, 2)
    with mode(), all_or_nothing(model) as lend_:
        lend_({weight: new})
    assert torch.equal(weight, new)

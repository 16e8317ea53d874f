import copy

import accelerate
import pytest
import torch
from torch import nn

import diffprune as dp
from diffprune._pruner.moving_inputs import MovingInputs


def gated(**options):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)
    )
    options = options or {"strength": 1e-2, "remove_every": 1}
    pruner = dp.Pruner(model, torch.rand(4, 8), **options)
    return model, pruner


def close_some(pruner):
    for gate in pruner.gates.values():
        gate.logits.data[::2] = -4.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.float16])
def test_example_inputs_follow_the_type_of_the_model(dtype):
    model, pruner = gated()
    model.to(dtype)
    close_some(pruner)
    assert pruner.step(torch.optim.SGD(model.parameters(), lr=0.0)) is not None
    assert pruner.example_inputs.dtype == dtype
    small = pruner.finalize()
    assert small[0].out_features == 32
    assert small(torch.rand(2, 8, dtype=dtype)).dtype == dtype


def test_only_tensors_like_the_model_follow_it():
    layer = nn.Linear(2, 2)
    given = {"x": torch.ones(2), "at": torch.ones(2).double(), "n": 3}
    found = MovingInputs(layer, given).like(layer.to("meta", torch.bfloat16))
    assert found["x"].dtype == torch.bfloat16
    assert found["at"].dtype == torch.float64
    assert found["x"].device.type == found["at"].device.type == "meta"
    assert found["n"] == 3


def test_steps_and_the_end_inside_autocast_are_checked_in_full_precision():
    model, pruner = gated()
    optimizer = torch.optim.SGD(pruner.parameter_groups(lr=0.0))
    close_some(pruner)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        record = pruner.step(optimizer)
        assert record.certificate.dtype == "float32"
        pruner.gates["0"].logits.data[::2] = -4.0
        small = pruner.finalize()
        assert small(torch.rand(2, 8)).dtype == torch.bfloat16
    assert model[0].out_features == 16


def test_a_pruner_is_made_inside_autocast():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, pruner = gated()
    assert set(pruner.gates) == {"0", "2"}


def test_a_forward_that_accelerate_wrapped_is_no_obstacle():
    model, pruner = gated()
    optimizer = torch.optim.SGD(pruner.parameter_groups(lr=0.0))
    accelerator = accelerate.Accelerator(mixed_precision="bf16", cpu=True)
    prepared, optimizer = accelerator.prepare(model, optimizer)
    around = vars(prepared)["forward"]
    close_some(pruner)
    assert pruner.step(optimizer).certificate.dtype == "float32"
    assert vars(prepared)["forward"] is around
    small = pruner.finalize()
    assert small[0].out_features == 32


def test_a_forward_of_the_users_own_is_what_is_checked():
    model, pruner = gated()
    plain = type(model).forward
    model.forward = lambda x: plain(model, x) * 2
    close_some(pruner)
    assert pruner.step(torch.optim.SGD(model.parameters(), lr=0.0)) is not None
    assert "forward" in vars(model)


def test_inputs_of_a_model_whose_parameters_are_all_complex_stay():
    layers = [nn.Linear(n, m, dtype=torch.complex64) for n, m in ((4, 6), (6, 2))]
    x = torch.rand(2, 4, dtype=torch.complex64)
    pruner = dp.Pruner(nn.Sequential(*layers), x, strength=1e-3)
    pruner.finalize()
    assert torch.equal(pruner.example_inputs, x)


def budget():
    return {"budget": dp.Budget(macs=0.5, steps=10)}


@pytest.mark.filterwarnings("ignore:the budget was met only now")
@pytest.mark.parametrize("make", [dict, budget])
def test_a_copy_of_a_pruner_goes_its_own_way(make):
    model, pruner = gated(**make())
    copied = copy.deepcopy(pruner)
    assert copied.model is not model
    assert copied.gates["0"] is not pruner.gates["0"]
    close_some(copied)
    copied.model(torch.rand(4, 8)).sum().backward()
    small = copied.finalize()
    assert small[0].out_features == 32 or make is budget
    assert model[0].out_features == 64
    assert pruner.gates["0"].is_open().all()
    assert all(p.grad is None for p in model.parameters())
    assert not pruner.history
    optimizer = torch.optim.SGD(pruner.parameter_groups(lr=0.0))
    close_some(pruner)
    (model(torch.rand(4, 8)).sum() + pruner.penalty()).backward()
    pruner.step(optimizer)
    assert pruner.finalize()[0].out_features < 64


def test_a_pruner_of_placed_gates_can_be_copied():
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), dp.Gate(6), nn.Linear(6, 3))
    pruner = dp.Pruner(model, torch.rand(4, 8), strength=1e-2)
    copied = copy.deepcopy(pruner)
    close_some(copied)
    assert copied.finalize()[0].out_features == 3
    assert model[0].out_features == 6
    close_some(pruner)
    assert pruner.finalize()[0].out_features == 3


def test_a_module_that_holds_its_pruner_can_be_copied():
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.model, self.pruner = gated()

    holder = copy.deepcopy(Holder())
    assert holder.pruner.model is holder.model
    close_some(holder.pruner)
    assert holder.pruner.finalize() is holder.model


class Average(nn.Module):
    """A moving average as timm's `ModelEmaV3` keeps it."""

    def __init__(self, model):
        super().__init__()
        self.module = copy.deepcopy(model)


def test_wrapped_averages_shrink_with_the_model():
    model, pruner = gated()
    average = Average(model)
    pruner.add_copy(average)
    close_some(pruner)
    pruner.step(torch.optim.SGD(model.parameters(), lr=0.0))
    assert average.module[0].out_features == model[0].out_features == 32
    with pytest.raises(dp.errors.ArgumentError, match="no copy of the model"):
        pruner.add_copy(Average(nn.Linear(2, 2)))


def test_making_a_pruner_does_not_change_what_the_model_returns():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(1)
    ).append(nn.Linear(16 * 36, 5))
    x = torch.rand(4, 3, 8, 8)
    for training in (True, False):
        model.train(training)
        before = copy.deepcopy(model)(x)
        pruner = dp.Pruner(copy.deepcopy(model), x, strength=1e-3)
        assert torch.equal(pruner.model(x), before)
        assert pruner.gates["0"].logits.std() > 0

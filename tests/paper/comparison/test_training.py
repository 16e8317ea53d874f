"""What a method adds to its training: rates, pressure, a hook; and a plain end."""

from dataclasses import replace

import pytest
import torch

from paper.comparison.method import MethodRun, Moment, ramp
from paper.comparison.systems import METHODS
from paper.comparison.training import AtTheEnd, Live, finished, units

IMAGES = torch.rand(4, 1, 28, 28)


def training(name, **changes):
    method = replace(METHODS[name], **changes)
    torch.manual_seed(0)
    run = MethodRun(method, method.asked(0), steps=10)
    return method.training(run, method.model(1.0), IMAGES)


def test_what_decides_about_units_has_the_rate_of_gates():
    noisy = training("bc-gnj")
    weights, deciding = noisy.parameter_groups(lr=1e-3, gate_lr=1e-2, weight_decay=0.1)
    names = {p: name for name, p in noisy.model.named_parameters()}
    fast = {names[p] for p in deciding["params"]}
    assert {"conv1.weight_log_var", "conv1.bias_log_var", "gate_flat.mean"} <= fast
    assert {names[p] for p in weights["params"]} == {
        f"{layer}.{part}"
        for layer in ("conv1", "conv2", "fc1", "fc2")
        for part in ("weight", "bias")
    }
    assert (weights["lr"], weights["weight_decay"]) == (1e-3, 0.1)
    assert (deciding["lr"], deciding["weight_decay"]) == (1e-2, 0.0)


@pytest.mark.parametrize("name", ["bc-gnj", "l0"])
def test_pressure_follows_the_progress(name):
    one = training(name, pressure=ramp(0.0, 1.0))
    assert isinstance(one, AtTheEnd if name == "bc-gnj" else Live)
    assert one.penalty() == 0
    one.steps = 5
    half = one.penalty()
    one.steps = 10
    torch.testing.assert_close(one.penalty(), 2 * half)
    assert half > 0


@pytest.mark.parametrize("name", ["bc-gnj", "l0"])
def test_hooks_are_told_when_they_are_called(name):
    told = []
    one = training(name, after_step=lambda _, moment: told.append(moment))
    optimizer = torch.optim.SGD(one.parameter_groups(lr=0.5))
    one.step(optimizer)
    one.step(optimizer)
    assert told == [Moment(1, 0.1, 0.5), Moment(2, 0.2, 0.5)]


def test_features_that_nothing_reads_go_one_by_one():
    model = METHODS["sparse-vd"].model(1.0).eval()
    with torch.no_grad():
        for layer in (model.conv1, model.conv2, model.fc1, model.fc2):
            layer.weight.copy_(layer.weight.sign() * (0.1 + layer.weight.abs()))
        model.fc1.log_sigma2[:, ::3] = 9.0
        model.conv1.log_sigma2[4:] = 9.0
    expected = model(IMAGES)
    small = finished(model, IMAGES)
    assert units(small) == (4, 50, 533, 500)
    torch.testing.assert_close(small(IMAGES), expected, atol=1e-4, rtol=1e-4)

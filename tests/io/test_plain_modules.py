import json
import math

import pytest
import torch
from torch import nn

from diffprune._io.plain_modules import Plain
from diffprune._surgery.replacement_modules import Select

MODULES = [
    nn.Identity(),
    nn.Threshold(math.inf, -0.5),
    nn.Threshold(-math.inf, math.nan),
    nn.MaxPool2d((1, 1), (2, 3), ceil_mode=True),
    nn.MaxPool1d(1, 2),
    nn.MaxPool3d(2),
    nn.MaxPool3d((1, 2, 2), (1, 2, 2), (0, 1, 1)),
    nn.ConstantPad3d((0, 0, 0, 0, 0, -2), 0.0),
    nn.Sequential(nn.MaxPool2d(1, 2), nn.Sequential(nn.Threshold(math.inf, 0.0))),
    Select(-2, None, None),
]


def test_lists_are_written_as_tuples():
    pool = nn.MaxPool3d([1, 2, 2], padding=[0, 1, 1])
    assert Plain.of(pool) == Plain.of(nn.MaxPool3d((1, 2, 2), padding=(0, 1, 1)))
    assert json.dumps(Plain.of(pool).to_dict())


@pytest.mark.parametrize("module", MODULES, ids=repr)
def test_a_module_is_made_again_from_json(module):
    plain = Plain.of(module)
    text = json.dumps(plain.to_dict(), allow_nan=False)
    again = Plain.from_dict(json.loads(text))
    assert repr(again.build()) == repr(module)
    assert type(again.build()) is type(module)
    assert repr(Plain.of(again.build())) == repr(plain)


@pytest.mark.parametrize(
    "module",
    [nn.Linear(2, 2), nn.Sequential(), nn.Sequential(nn.Identity(), nn.Linear(2, 2))],
    ids=repr,
)
def test_modules_of_other_kinds_are_not_described(module):
    assert Plain.of(module) is None


def test_a_subclass_is_another_kind():
    class Mine(nn.Identity):
        def forward(self, x):
            return -x

    assert Plain.of(Mine()) is None


@pytest.mark.parametrize("value", ["one", None, [[1]], {"a": 1}, ["inf", "x"]])
def test_arguments_are_numbers(value):
    data = {"threshold": value, "value": 0.0, "inplace": False}
    with pytest.raises((TypeError, ValueError), match="expected a number"):
        Plain.from_dict({"kind": "Threshold", "arguments": data, "parts": []})


def test_zeros_are_zeros():
    data = {"threshold": "inf", "value": 0, "inplace": False}
    plain = Plain.from_dict({"kind": "Threshold", "arguments": data, "parts": []})
    assert torch.equal(plain.build()(torch.rand(3)), torch.zeros(3))

import json

import pytest
import torch
from torch import nn

from diffprune._graph import find_groups
from diffprune._surgery.compare import Certificate
from diffprune._surgery.plan import Plan, plan_removal
from diffprune._surgery.replacement_modules import Stub
from diffprune.errors import ArgumentError

PLAN = Plan(
    {"0": (0, 2)},
    {"0.weight": {0: (0, 2)}, "0.bias": {0: (0, 2)}, "2.weight": {1: (0, 2)}},
    {"heads": 2},
    {"3": Stub((2, 2), -1), "4": Stub()},
    certificate=Certificate(1e-16, 2e-16, "float64"),
)


@pytest.fixture(scope="module")
def groups():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 2 * 2, 5)
    )
    return find_groups(model, torch.rand(2, 3, 4, 4))


def test_a_plan_says_what_stays_of_every_tensor(groups):
    plan = plan_removal(groups, keep={"0": torch.tensor([True, False, False, True])})
    assert plan.kept == {"0": (0, 3)}
    assert plan.tensors["1.running_var"] == {0: (0, 3)}
    assert plan.tensors["3.weight"] == {1: (0, 1, 2, 3, 12, 13, 14, 15)}


def test_keeping_everything_plans_nothing(groups):
    plan = plan_removal(groups, keep={"0": torch.ones(4, dtype=torch.bool)})
    assert plan == Plan({}, {}, {})
    assert str(plan) == "nothing to remove"


def test_a_plan_prints_its_widths_and_certificate():
    assert str(PLAN).splitlines() == [
        "0: keep 2 units",
        "3: zeros instead",
        "4: zeros instead",
        "outputs differ by at most 1.0e-16 absolute, 2.0e-16 relative (float64)",
    ]


def test_a_plan_cannot_be_changed():
    with pytest.raises(AttributeError):
        PLAN.kept = {}


def test_json_gives_the_same_plan_and_certificate():
    read = Plan.from_json(PLAN.to_json())
    assert read == PLAN
    assert read.certificate == PLAN.certificate


def test_then_counts_in_the_numbers_of_the_original():
    later = Plan({"0": (1,)}, {"0.weight": {0: (1,), 1: (5,)}, "new": {0: (3,)}}, {})
    both = PLAN.then(later)
    assert both.kept == {"0": (2,)}
    assert both.tensors["0.weight"] == {0: (2,), 1: (5,)}
    assert both.tensors["new"] == {0: (3,)}
    assert both.tensors["0.bias"] == {0: (0, 2)}


def test_then_refuses_a_plan_for_the_larger_model():
    with pytest.raises(ArgumentError, match=r"keeps index 2 .*leaves 2"):
        PLAN.then(PLAN)


def test_what_is_replaced_need_not_be_cut():
    plan = PLAN.without({"2": Stub()})
    assert plan.tensors == {k: PLAN.tensors[k] for k in ("0.weight", "0.bias")}
    assert list(plan.stubs) == ["3", "4", "2"]
    later = Plan({"0": ()}, {}, {}, {"0": Stub()})
    both = PLAN.then(later)
    assert (both.kept, list(both.tensors)) == ({"0": ()}, ["2.weight"])
    assert list(both.stubs) == ["3", "4", "0"]


def test_a_stub_takes_the_place_of_those_inside_it():
    early = Plan({}, {}, {"block.heads": 2}, {"block.fc": Stub(), "blocks": Stub()})
    plan = early.without({"block": Stub()})
    assert (plan.attributes, list(plan.stubs)) == ({}, ["blocks", "block"])


def test_plans_from_before_there_were_stubs_are_read():
    data = json.loads(PLAN.to_json())
    del data["stubs"], data["digest"]
    assert Plan.from_json(json.dumps(data)).stubs == {}


def changed(**fields):
    data = {**json.loads(PLAN.to_json()), **fields}
    del data["digest"]
    return json.dumps(data)


def test_a_damaged_plan_is_refused():
    text = PLAN.to_json()
    assert Plan.from_json(text) == PLAN
    for place, letter in enumerate(text):
        if letter.isdigit():
            flipped = text[:place] + chr(ord(letter) ^ 1) + text[place + 1 :]
            with pytest.raises(ArgumentError, match=r"damaged|version"):
                Plan.from_json(flipped)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        PLAN.to_json()[:-20],
        "[" * 100_000,
        changed(kept=[]),
        changed(kept={"0": 3}),
        changed(kept={"0": "02"}),
        changed(tensors={"w": [1]}),
        changed(tensors={"w": {"zero": [1]}}),
        changed(tensors={"w": {"-1": [1]}}),
        changed(tensors={"w": {"0": [1, 0]}}),
        changed(tensors={"w": {"0": [1, 1]}}),
        changed(tensors={"w": {"0": [-1, 1]}}),
        changed(tensors={"w": {"0": [0.5]}}),
        changed(tensors={"w": {"0": [True]}}),
        changed(attributes={"heads": "2"}),
        changed(attributes={"heads": -2}),
        changed(attributes={"heads": True}),
        changed(stubs={"3": {}}),
        changed(stubs={"3": {"strides": 2, "wider": 0}}),
        changed(stubs={"3": {"strides": [0], "wider": 0}}),
        changed(stubs={"3": {"strides": [-1], "wider": 0}}),
        changed(stubs={"3": {"strides": [2, 2, 2, 2], "wider": 0}}),
        changed(stubs={"3": {"strides": [], "wider": 0.5}}),
        changed(stubs={"3": {"strides": [], "wider": 0, "evil": 1}}),
        changed(certificate={"max_absolute": 0.0}),
        changed(certificate={"max_absolute": [], "max_relative": 0, "dtype": ""}),
        changed(certificate={"evil": 1}),
    ],
)
def test_what_is_not_a_plan_is_refused(text):
    with pytest.raises(ArgumentError, match="the text is not a removal plan"):
        Plan.from_json(text)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_other_versions_are_refused(version):
    with pytest.raises(ArgumentError, match=f"version {version!r}.*Upgrade"):
        Plan.from_json(changed(version=version))

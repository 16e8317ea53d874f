import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from diffprune.errors import ArgumentError, MissingPackageError, UnknownNameError
from diffprune.lab.cli.load_model import load_target

SOURCE = """
from torch import nn
def model(): return nn.Linear(3, 2)
def needs(width): return nn.Linear(width, 2)
def number(): return 3
made = nn.Linear(3, 4)
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "models.py"
    path.write_text(SOURCE)
    return path


def make(_name, **_):
    model = nn.Linear(2, 2)
    model.pretrained_cfg = {"input_size": (3, 32, 32)}
    return model


@pytest.fixture
def zoos(monkeypatch):
    """Stand-ins for timm and torchvision, which need an environment of their own."""
    timm = SimpleNamespace(
        create_model=make,
        is_model=lambda name: name == "resnet50",
        list_models=lambda: ["resnet50"],
    )
    vision = SimpleNamespace(get_model=make, list_models=lambda: ["resnet18"])
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(models=vision))
    monkeypatch.setitem(sys.modules, "torchvision.models", vision)


def test_a_factory_in_a_file(file):
    target = load_target(f"{file}:model")
    assert (target.model.out_features, target.inputs) == (2, None)


def test_a_model_that_is_already_made(file):
    assert load_target(f"{file}:made").model.out_features == 4


def test_a_factory_in_a_module():
    assert load_target("diffprune.lab.digits:LeNet5").model.fc2.out_features == 10


@pytest.mark.usefixtures("zoos")
@pytest.mark.parametrize(
    ("name", "shape"),
    [("timm:resnet50", (1, 3, 32, 32)), ("torchvision:resnet18", (1, 3, 224, 224))],
)
def test_models_of_a_zoo_come_with_inputs(name, shape):
    assert load_target(name).inputs.shape == shape


def test_a_model_of_timm():
    pytest.importorskip("timm")
    target = load_target("timm:resnet18")
    assert target.model.num_classes == 1000
    assert target.inputs.shape == (1, 3, 224, 224)


TINY = {
    "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 1,
    "num_attention_heads": 2,
}  # fmt: skip
BERT = {**TINY, "vocab_size": 31}


@pytest.fixture(scope="module")
def hf():
    return pytest.importorskip("transformers")


def test_a_configuration_of_a_language_model(hf, tmp_path):
    names = ["BertForSequenceClassification"]
    hf.BertConfig(**BERT, architectures=names).save_pretrained(tmp_path)
    for place in (tmp_path, tmp_path / "config.json"):
        target = load_target(f"hf:{place}")
        assert type(target.model).__name__ == names[0]
        assert {n: x.dtype for n, x in target.inputs.items()} == {
            "input_ids": torch.int64
        }


def test_a_configuration_without_a_class_makes_the_trunk(hf, tmp_path):
    hf.BertConfig(**BERT).save_pretrained(tmp_path)
    assert type(load_target(f"hf:{tmp_path}").model).__name__ == "BertModel"


def test_a_configuration_of_an_image_model(hf, tmp_path):
    hf.ViTConfig(**TINY, image_size=16, patch_size=8).save_pretrained(tmp_path)
    assert load_target(f"hf:{tmp_path}").inputs["pixel_values"].shape == (1, 3, 16, 16)


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("resnet50", UnknownNameError, "neither a run folder nor the name of a model"),
        ("no.py:model", UnknownNameError, "there is no file `no.py`"),
        ("{file}:modle", UnknownNameError, "it has `model`, `needs`, `number`"),
        ("{file}:needs", ArgumentError, "missing 1 required positional .* 'width'"),
        ("{file}:number", ArgumentError, r"number\(\)` returns int, not a"),
        ("hf:{file}", ArgumentError, "is no configuration"),
        ("hf:nowhere", UnknownNameError, "models are not downloaded"),
        ("timm:resnet51", UnknownNameError, "Did you mean `resnet50`?"),
        ("torchvision:x", UnknownNameError, "torchvision has no model `x`"),
    ],
)
@pytest.mark.usefixtures("zoos")
def test_targets_that_lead_nowhere_are_explained(file, name, kind, message):
    with pytest.raises(kind, match=message):
        load_target(name.format(file=file))


@pytest.mark.parametrize("package", ["timm", "torchvision", "transformers"])
def test_a_missing_package_is_named(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    source = {"transformers": "hf"}.get(package, package)
    with pytest.raises(MissingPackageError, match=f"pip install {package}"):
        load_target(f"{source}:model")

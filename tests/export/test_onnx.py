import importlib.util

import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import diffprune as dp
from diffprune._core.leaves import leaves_of
from diffprune._export import onnx as exporting
from diffprune._export.checked_export import model_outputs, resized
from diffprune.errors import ArgumentError, ExportError, MissingPackageError

OTHERS = [
    pytest.param(name, marks=pytest.mark.slow)
    for name in ("resnet", "lstm", "transformer")
]


@pytest.mark.parametrize("case", ["lenet5", *OTHERS], indirect=True)
def test_onnx_runtime_computes_what_the_model_does_for_any_batch(case, tmp_path, capfd):
    model, inputs = case
    path = dp.to_onnx(model, inputs, tmp_path / "deep" / "model.onnx")
    assert capfd.readouterr() == ("", "")
    session = onnxruntime.InferenceSession(path)
    (name,) = [value.name for value in session.get_inputs()]
    for size in (1, 2, 5):
        batch = resized(inputs, 0, size)
        (x,) = leaves_of(torch.Tensor, batch)
        found = [torch.from_numpy(y) for y in session.run(None, {name: x.numpy()})]
        expected = model_outputs(model, batch)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    written = path.read_bytes()
    assert b"diffprune" not in written
    assert str(tmp_path).encode() not in written
    assert [file.name for file in path.parent.iterdir()] == ["model.onnx"]


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 4)

    def forward(self, features, unread, flag=None, *, scale):
        del unread, flag
        x = self.fc(features) * scale
        return {"logits": x, "boxes": (x[:, :2], x.mean(0)), "none": None}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    inputs = {
        "features": torch.rand(1, 3),
        "unread": torch.rand(1, 2),
        "scale": torch.rand(1, 1),
        "flag": None,
    }
    path = tmp_path_factory.mktemp("onnx") / "heads.onnx"
    return dp.to_onnx(Heads(), inputs, path)


def test_inputs_outputs_and_the_batch_are_called_by_their_names(written):
    session = onnxruntime.InferenceSession(written)
    inputs = {value.name: value.shape for value in session.get_inputs()}
    outputs = {value.name: value.shape for value in session.get_outputs()}
    assert inputs == {
        "features": ["batch", 3],
        "unread": ["batch", 2],
        "scale": ["batch", 1],
    }
    assert outputs == {"logits": ["batch", 4], "boxes_0": ["batch", 2], "boxes_1": [4]}


def test_the_file_is_valid_and_whole(written):
    onnx.checker.check_model(written, full_check=True)
    assert not onnx.external_data_helper.uses_external_data(
        onnx.load(written).graph.initializer[0]
    )


@pytest.mark.slow
def test_large_weights_get_a_file_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "_LARGEST_MESSAGE", 1000)
    model, x = nn.Linear(50, 60), torch.rand(2, 50)
    path = dp.to_onnx(model, x, tmp_path / "model.onnx")
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"model.onnx", "model.onnx.data"}
    (found,) = onnxruntime.InferenceSession(path).run(None, {"input": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(found), model(x))


def test_a_file_that_computes_something_else_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(exporting, "_session", lambda *_: lambda x: [x])
    (tmp_path / "model.onnx").write_bytes(b"older")
    with pytest.raises(ExportError, match="computes something else"):
        dp.to_onnx(nn.Linear(3, 3), torch.rand(2, 3), tmp_path / "model.onnx")
    assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"older"]


class Exotic(nn.Module):
    def forward(self, x):
        return torch.special.bessel_j0(x)


@pytest.mark.slow
def test_operations_that_onnx_lacks_are_named(tmp_path):
    with pytest.raises(
        ExportError, match=r"(?s)cannot be written as ONNX: .*bessel_j0"
    ):
        dp.to_onnx(Exotic(), torch.rand(2, 3), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


class Returning(nn.Module):
    def forward(self, first, second):
        return first, second + 1, second


def test_inputs_that_are_returned_keep_their_names(tmp_path):
    x, y = torch.rand(2, 3), torch.rand(2, 4)
    path = dp.to_onnx(Returning(), (x, y), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(path)
    assert [value.name for value in session.get_inputs()] == ["first", "second"]
    found = session.run(None, {"first": x.numpy(), "second": y.numpy()})
    assert [value.shape for value in found] == [(2, 3), (2, 4), (2, 4)]


class Halving(nn.Module):
    def forward(self, x):
        first, second = torch.cat([x, x.tanh()]).chunk(2)
        return first - second


def test_what_is_behind_a_failure_is_named(tmp_path):
    match = r"(?s)cannot be written as ONNX: .*SplitToSequence.*`batch_dim=None`"
    with pytest.raises(ExportError, match=match):
        dp.to_onnx(Halving(), torch.rand(2, 3), tmp_path / "model.onnx")
    dp.to_onnx(Halving(), torch.rand(2, 3), tmp_path / "model.onnx", batch_dim=None)


def test_types_that_onnx_runtime_lacks_are_explained(tmp_path):
    model, x = nn.Linear(3, 3).bfloat16(), torch.rand(2, 3).bfloat16()
    match = r"(?s)ONNX Runtime does not run the model.*Gemm.*`model.float\(\)`"
    with pytest.raises(ExportError, match=match):
        dp.to_onnx(model, x, tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


def test_gates_have_to_be_gone(tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), dp.Gate(3))
    with pytest.raises(ArgumentError, match=r"gates: `1`.*\n.*`pruner.finalize\(\)`"):
        dp.to_onnx(model, torch.rand(2, 3), tmp_path / "model.onnx")


def test_missing_packages_are_named(tmp_path, monkeypatch):
    found = importlib.util.find_spec
    missing = {"onnx", "onnxscript"}
    monkeypatch.setattr(
        exporting, "find_spec", lambda name: None if name in missing else found(name)
    )
    match = (
        r"onnx and onnxscript must be installed.\n.*pip install 'diffprune\[export\]"
    )
    with pytest.raises(MissingPackageError, match=match):
        dp.to_onnx(nn.Linear(3, 3), torch.rand(2, 3), tmp_path / "model.onnx")

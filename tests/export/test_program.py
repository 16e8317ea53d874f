from typing import NamedTuple

import pytest
import torch
from torch import nn

import diffprune as dp
from diffprune._export import program as exporting
from diffprune._export.checked_export import model_outputs, resized
from diffprune._surgery.replacement_modules import Select
from diffprune.errors import ArgumentError, ExportError, TraceError

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "case",
    [
        "lenet5",
        "lstm",
        pytest.param("transformer", marks=SLOW),
        pytest.param("resnet", marks=SLOW),
    ],
    indirect=True,
)
def test_a_file_computes_what_the_model_does_for_any_batch(case, tmp_path):
    model, inputs = case
    path = tmp_path / "model.pt2"
    dp.to_exported_program(model, inputs, path)
    module = torch.export.load(path).module()
    for size in (1, 2, 5):
        batch = resized(inputs, 0, size)
        args, kwargs = ((), batch) if isinstance(batch, dict) else ((batch,), {})
        found = torch.utils._pytree.tree_leaves(module(*args, **kwargs))
        torch.testing.assert_close(found, model_outputs(model, batch))


@pytest.mark.parametrize("case", ["lenet5"], indirect=True)
def test_nothing_tells_how_the_model_was_made(case, tmp_path):
    model, inputs = case
    assert any(isinstance(module, Select) for module in model.modules())
    path = tmp_path / "model.pt2"
    dp.to_exported_program(model, inputs, path)
    written = path.read_bytes()
    assert b"diffprune" not in written
    assert str(tmp_path).encode() not in written
    assert __file__.encode() not in written
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt2"]


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's own
def test_modules_keep_their_names():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    program = dp.to_exported_program(model, torch.rand(2, 3))
    again, x = torch.export.unflatten(program), torch.rand(5, 3)
    assert torch.equal(again(x), model(x))
    assert list(program.state_dict) == list(model.state_dict())


def test_the_model_keeps_its_mode_and_its_statistics():
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout())
    dp.to_exported_program(model, torch.rand(2, 3))
    assert all(module.training for module in model.modules())
    assert model[1].num_batches_tracked == 0


def test_shapes_can_be_fixed():
    model = nn.Linear(3, 2)
    program = dp.to_exported_program(model, torch.rand(4, 3), batch_dim=None)
    with pytest.raises(RuntimeError, match="to be equal to 4, but got 5"):
        program.module()(torch.rand(5, 3))


def test_another_dimension_can_be_the_batch():
    model = nn.GRU(3, 4)
    program = dp.to_exported_program(model, torch.rand(6, 2, 3), batch_dim=1)
    assert program.module()(torch.rand(6, 5, 3))[0].shape == (6, 5, 4)


class AnyKeywords(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, *args, **kwargs):
        return self.layer(*args, kwargs["x"]) + kwargs.get("y", 0)


def test_keywords_that_no_signature_names_have_a_batch_too():
    model = AnyKeywords()
    inputs = {"x": torch.rand(2, 3), "y": torch.rand(2, 2)}
    program = dp.to_exported_program(model, inputs)
    assert "forward" not in vars(model)
    more = {name: tensor.repeat(3, 1) for name, tensor in inputs.items()}
    torch.testing.assert_close(program.module()(**more), model(**more))


class FixedBatch(nn.Module):
    def forward(self, x):
        return x.reshape(4, 3).sum(1)


class Random(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


class Pair(NamedTuple):
    one: torch.Tensor
    other: torch.Tensor


class Named(nn.Module):
    def forward(self, x):
        return Pair(x + 1, x - 1)


class Branching(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("model", "error", "match"),
    [
        (nn.Sequential(nn.Linear(3, 3), dp.Gate(3)), ArgumentError, "finalize"),
        (nn.DataParallel(nn.Linear(3, 3)), ArgumentError, "wrapped in DataParallel"),
        (FixedBatch(), TraceError, "pass `batch_dim=None`; .* as `batch_dim=1`"),
        (Named(), ExportError, r"cannot write .*Pair.*\n.* a tuple or a dict there"),
        (Branching(), TraceError, "Branching cannot be exported"),
        (Random(), ExportError, "random numbers in eval mode"),
        (nn.Linear(9, 3), ArgumentError, "shapes cannot be multiplied"),
    ],
)
def test_what_cannot_be_exported_is_refused(model, error, match, tmp_path):
    path = tmp_path / "model.pt2"
    with pytest.raises(error, match=match):
        dp.to_exported_program(model, torch.rand(4, 3), path)
    assert not list(tmp_path.iterdir())


def test_batches_that_the_model_does_not_take_are_not_compared():
    model = nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4, track_running_stats=False), nn.Linear(4, 2)
    )
    program, x = dp.to_exported_program(model, torch.rand(4, 3)), torch.rand(7, 3)
    torch.testing.assert_close(program.module()(x), model.eval()(x))


def test_a_pruner_has_to_be_finished():
    pruner = dp.Pruner(
        nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)), torch.rand(2, 3), strength=1e-5
    )
    with pytest.raises(
        ArgumentError, match=r"Export what `pruner.finalize\(\)` return"
    ):
        dp.to_exported_program(pruner.model, torch.rand(2, 3))


def test_a_file_that_computes_something_else_is_not_written(tmp_path, monkeypatch):
    path, model = tmp_path / "model.pt2", nn.Linear(3, 2)
    path.write_bytes(b"older")
    other = torch.export.export(nn.Linear(3, 2), (torch.rand(4, 3),))
    monkeypatch.setattr(exporting.torch.export, "load", lambda _: other)
    with pytest.raises(ExportError, match="computes something else"):
        dp.to_exported_program(model, torch.rand(4, 3), path)
    assert path.read_bytes() == b"older"
    assert [file.name for file in tmp_path.iterdir()] == ["model.pt2"]

import json

import pytest
import safetensors.torch
import torch
from safetensors.torch import save_file
from torch import nn

import diffprune as dp
from diffprune._core.tensor_files import stored_size
from diffprune.errors import ArgumentError


def test_the_folder_holds_tensors_and_widths(folder, small):
    assert {path.name for path in folder.iterdir()} == {
        "blueprint.json",
        "model.safetensors",
    }
    data = json.loads((folder / "blueprint.json").read_text())
    assert data["format"] == "diffprune-pruned-model"
    assert data["version"] == 1
    assert data["sizes"]["fc1"] == {"in_features": 5, "out_features": 8}
    held = safetensors.torch.load_file(folder / "model.safetensors")
    assert set(held) == {*small.state_dict(), "scale"}


def test_a_shared_tensor_is_stored_once(tmp_path):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    folder = dp.save_pruned(model, tmp_path)
    held = safetensors.torch.load_file(folder / "model.safetensors")
    assert set(held) == {"0.weight", "0.bias", "1.bias"}


def test_views_of_one_storage_are_stored_whole(tmp_path):
    model = nn.Linear(3, 2)
    model.register_buffer("rows", torch.rand(4, 5)[:, 1:3])
    model.register_buffer("columns", model.rows.t())
    fresh = nn.Linear(3, 2)
    fresh.register_buffer("rows", torch.zeros(4, 2))
    fresh.register_buffer("columns", torch.zeros(2, 4))
    dp.load_pruned(fresh, dp.save_pruned(model, tmp_path))
    assert torch.equal(fresh.rows, model.rows)
    assert torch.equal(fresh.columns, model.columns)


def test_saving_again_replaces_the_model(folder, make):
    dense = make()
    dp.save_pruned(dense, folder)
    assert torch.equal(dp.load_pruned(make(), folder).fc1.weight, dense.fc1.weight)


class Stateful(nn.Module):
    def get_extra_state(self):
        return object()


def sparse():
    model = nn.Linear(3, 2)
    model.register_buffer("mask", torch.eye(3).to_sparse())
    return model


def double_complex():
    model = nn.Linear(3, 2)
    model.register_buffer("phase", torch.zeros(2, dtype=torch.complex128))
    return model


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: nn.Sequential(nn.Linear(3, 2), dp.Gate(2)), r"gates: `1`.\nSave what"),
        (lambda: nn.Sequential(Stateful()), "`0` keeps extra state"),
        (lambda: nn.DataParallel(nn.Linear(3, 2)), "wrapped in DataParallel"),
        (lambda: nn.LazyLinear(3), "its layer is lazy"),
        (sparse, "`mask` is stored as torch.sparse_coo"),
        (double_complex, "cannot hold numbers of type torch.complex128"),
    ],
)
def test_what_cannot_be_saved_is_refused(build, match, tmp_path):
    with pytest.raises(ArgumentError, match=match):
        dp.save_pruned(build(), tmp_path)
    assert not (tmp_path / "model.safetensors").exists()
    assert not (tmp_path / "blueprint.json").exists()


def test_a_model_with_a_pruner_is_refused(make, inputs, tmp_path):
    pruner = dp.Pruner(make(), inputs, strength=1e-5)
    with pytest.raises(ArgumentError, match=r"Save what `pruner.finalize\(\)` returns"):
        dp.save_pruned(pruner.model, tmp_path)


def test_the_size_on_disk_is_that_of_the_file_however_tensors_lie(tmp_path):
    conv = nn.Conv2d(3, 5, 3).to(memory_format=torch.channels_last)
    save_file({n: t.contiguous() for n, t in conv.state_dict().items()}, tmp_path / "f")
    assert stored_size(conv.state_dict()) == (tmp_path / "f").stat().st_size

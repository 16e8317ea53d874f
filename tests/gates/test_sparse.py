"""Weights that gates have closed are zeros, and zeros take no room in a file."""

import json

import pytest
import safetensors.torch
import torch
from torch import nn

import diffprune as dp
from diffprune._core import tensor_files
from diffprune.errors import ArgumentError
from diffprune.gates.sparse import load_sparse, save_sparse
from paper.models.lenet5 import LeNet5


def mlp():
    return nn.Sequential(nn.Linear(20, 60), nn.ReLU(), nn.Linear(60, 4))


MODELS = {"mlp": (mlp, (20,)), "lenet": (LeNet5, (1, 28, 28))}


def thinned(build, share):
    """A model with gated weights, most of them closed, and the same one folded."""
    model = build()
    layers = [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    for layer in layers:
        gate = dp.gate_weight(layer)
        closed = torch.rand(gate.size) < share
        gate.logits.data[closed] -= 5.0
    return model


@pytest.mark.parametrize("name", MODELS)
def test_closed_weights_are_stored_in_no_space(name, tmp_path):
    build, shape = MODELS[name]
    model, x = thinned(build, share=0.95).eval(), torch.rand(3, *shape)
    with torch.no_grad():
        before = model(x)
        dp.fold_gates(model)
        torch.testing.assert_close(model(x), before)
    weights = torch.cat([p.flatten() for p in model.parameters() if p.ndim > 1])
    assert 0.93 < (weights == 0).float().mean() < 0.97
    size = save_sparse(model, tmp_path / "sparse")
    safetensors.torch.save_file(model.state_dict(), tmp_path / "dense")
    dense = (tmp_path / "dense").stat().st_size
    assert size == (tmp_path / "sparse").stat().st_size
    print(f"{name}: {dense:,} bytes dense, {size:,} sparse")  # noqa: T201 - a figure
    assert size < 0.25 * dense
    fresh = load_sparse(build(), tmp_path / "sparse").eval()
    with torch.no_grad():
        assert torch.equal(fresh(x), model(x))


def test_gated_weights_train_to_exact_zeros():
    model = mlp()
    gates = [dp.gate_weight(model[0]), dp.gate_weight(model[2])]
    optimizer = torch.optim.Adam(dp.parameter_groups(model, lr=1e-2, gate_lr=5e-2))
    x = torch.randn(64, 20)
    for _ in range(60):
        optimizer.zero_grad()
        task = nn.functional.mse_loss(model(x)[:, :1], x[:, :1])
        (task + dp.expected_l0(model, 1e-3)).backward()
        optimizer.step()
    closed = sum(int((~gate.is_open()).sum()) for gate in gates)
    folded = dp.fold_gates(model)
    zeros = sum(int((layer.weight == 0).sum()) for layer in (folded[0], folded[2]))
    assert zeros == closed > 300


def test_all_dtypes_and_empty_tensors_come_back(tmp_path):
    model = nn.BatchNorm1d(5)
    model.register_buffer("nothing", torch.empty(0, 3))
    model.register_buffer("mask", torch.zeros(40, dtype=torch.bool))
    model.register_buffer("coarse", torch.zeros(6, 7, dtype=torch.bfloat16))
    save_sparse(model, tmp_path / "file")
    fresh = nn.BatchNorm1d(5)
    for name in ("nothing", "mask", "coarse"):
        fresh.register_buffer(name, torch.ones_like(getattr(model, name)))
    load_sparse(fresh, tmp_path / "file")
    torch.testing.assert_close(fresh.state_dict(), model.state_dict(), rtol=0, atol=0)


@pytest.fixture
def saved(tmp_path):
    model = nn.Linear(30, 20)
    model.weight.data[5:] = 0.0
    save_sparse(model, tmp_path / "file")
    return tmp_path / "file"


def rewrite(path, **changed):
    tensors, header = tensor_files.read_tensors(path)
    tensors.update({k.replace("_", ":", 1): v for k, v in changed.items()})
    path.write_bytes(tensor_files.packed(tensors, **header))


@pytest.mark.parametrize(
    "indices",
    [
        torch.arange(150, dtype=torch.int32).flip(0),
        torch.arange(150, dtype=torch.int32) - 1,
        torch.arange(150, dtype=torch.int32) + 10_000,
        torch.zeros(150, dtype=torch.int32),
        torch.arange(3, dtype=torch.int32),
    ],
)
def test_indices_that_do_not_fit_are_refused(saved, indices):
    rewrite(saved, indices_weight=indices)
    model = nn.Linear(30, 20)
    before = model.weight.clone()
    with pytest.raises(ArgumentError, match="indices of `weight` do not fit"):
        load_sparse(model, saved)
    assert torch.equal(model.weight, before)


def test_other_models_are_refused(saved):
    with pytest.raises(ArgumentError, match=r"it holds .'bias', 'weight'."):
        load_sparse(nn.Linear(30, 20, bias=False), saved)
    with pytest.raises(
        ArgumentError, match=r"`weight` is of .20, 30. in it, of .21, 30."
    ):
        load_sparse(nn.Linear(30, 21), saved)


def test_other_files_are_refused(saved):
    saved.write_bytes(saved.read_bytes()[:50])
    with pytest.raises(ArgumentError, match="not a sparse file for this model"):
        load_sparse(nn.Linear(30, 20), saved)
    saved.write_bytes(tensor_files.packed({}, shapes=json.dumps({})))
    with pytest.raises(ArgumentError, match="its format is 'pt'"):
        load_sparse(nn.Linear(30, 20), saved)
    safetensors.torch.save_file(nn.Linear(30, 20).state_dict(), saved)
    with pytest.raises(ArgumentError, match="carries no digest"):
        load_sparse(nn.Linear(30, 20), saved)


def test_a_matrix_that_lies_the_other_way_is_refused(tmp_path):
    save_sparse(nn.Linear(8, 16, bias=False), tmp_path / "file")
    with pytest.raises(ArgumentError, match=r"`weight` is of .16, 8. in it, of .8, 16"):
        load_sparse(nn.Linear(16, 8, bias=False), tmp_path / "file")


def test_a_missing_file_is_a_missing_file(saved):
    with pytest.raises(FileNotFoundError):
        load_sparse(nn.Linear(30, 20), saved.with_name("missing"))

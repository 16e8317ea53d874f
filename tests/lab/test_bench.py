import pytest
import safetensors.torch
import torch

from diffprune._costs.benchmark import COMPILED, EAGER
from diffprune.errors import ArgumentError
from diffprune.lab import train
from diffprune.lab.bench import ONNX, bench
from diffprune.lab.runs.tasks import load_task

SOURCE = """
import torch
from torch import nn
from diffprune.lab import Task
from diffprune.lab.image_batches import Batches, Examples

def wide(recipe):
    x = torch.randn(64, 4)
    data = Examples(x, (x.sum(dim=1) > 0).long())
    return Task(
        model=nn.Sequential(nn.Linear(4, 512), nn.ReLU(), nn.Linear(512, 2)),
        train=Batches(data, recipe.batch_size, shuffle=True),
        test=Batches(data, 32),
    )
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, recipe):
    """A run that leaves few of 512 units."""
    home = tmp_path_factory.mktemp("bench")
    (home / "benched.py").write_text(SOURCE)
    make_task, _ = load_task(f"{home / 'benched.py'}:wide")
    train(make_task, recipe, out=home / "run")
    return home / "run"


@pytest.fixture(scope="module")
def found(folder):
    return {
        (m.network, m.engine): m for m in bench(folder, trust=True, batch=50, rounds=3)
    }


def test_networks_are_measured_in_every_engine(found):
    pytest.importorskip("onnxruntime")
    networks = [("dense", EAGER), ("gated", EAGER), ("small", EAGER)]
    assert list(found) == [*networks, ("dense", ONNX), ("small", ONNX)]


def test_the_dense_network_in_pytorch_is_the_measure(found):
    assert found["dense", EAGER].ratio == 1.0


def test_the_file_is_that_of_the_run_without_its_header(found, folder):
    saved = safetensors.torch.load_file(folder / "model.safetensors")
    small = found["small", EAGER].file_size
    assert small == len(safetensors.torch.save(saved))
    assert small < found["dense", EAGER].file_size


def test_memory_is_that_of_the_weights_and_the_activations(found):
    """Three activations of 50 x 512 are made; at least two exist at a time."""
    weights = 4 * (4 * 512 + 512 + 512 * 2 + 2)
    activations = 4 * 50 * 512
    memory = found["dense", EAGER].memory
    assert weights + activations <= memory <= weights + 3 * activations
    assert found["small", EAGER].memory < memory


def test_a_dense_run_has_no_gated_network(folder, recipe, tmp_path):
    from dataclasses import replace

    make_task, _ = load_task(f"{folder.parent / 'benched.py'}:wide")
    train(make_task, replace(recipe, strength=None, epochs=1), out=tmp_path)
    networks = {m.network for m in bench(tmp_path, trust=True, rounds=2, onnx=False)}
    assert networks == {"dense", "small"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, on import
def test_compiled_networks_can_be_measured(folder):
    found = bench(folder, trust=True, rounds=2, compiled=True, onnx=False)
    assert {m.network for m in found if m.engine == COMPILED} == {
        "dense",
        "gated",
        "small",
    }


def test_an_unfinished_run_is_refused(folder, tmp_path):
    for name in ("recipe.json", "environment.json", "task.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(ArgumentError, match="is unfinished: it has 0 of 3 epochs"):
        bench(tmp_path, trust=True)


def test_threads_are_left_as_they_were(found):
    assert found
    assert torch.get_num_threads() == 1  # of the tests

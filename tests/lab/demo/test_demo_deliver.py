from dataclasses import replace

import pytest
import torch

from diffprune import load_pruned
from diffprune.errors import MissingPackageError
from diffprune.lab import train
from diffprune.lab.demo import demo_deliver as delivering
from diffprune.lab.demo.demo_deliver import deliver
from paper import lenet5_tasks as builtin
from paper.models.lenet5 import LeNet5


@pytest.fixture(scope="module")
def pruned(tmp_path_factory):
    """A run of one step: nothing is closed yet, and nothing has to be."""
    out = tmp_path_factory.mktemp("pruned")
    with pytest.MonkeyPatch.context() as patch:
        few = builtin.load_digits().test.take(torch.arange(8))
        split = builtin.Split(few, None, few)
        patch.setattr(builtin, "load_digits", lambda: split)
        train(
            builtin.lenet5_digits, replace(builtin.digits_sigmoid(), epochs=1), out=out
        )
        yield out


@pytest.fixture
def small_report(monkeypatch):
    """Reports have tests of their own."""

    def write(runs, path):
        path.write_text(f"{len(runs)} runs")
        return path

    monkeypatch.setattr(delivering, "write_report", write)


@pytest.mark.usefixtures("small_report")
def test_the_network_is_written_in_every_form(pruned, tmp_path):
    pytest.importorskip("onnxruntime")
    found = deliver(tmp_path, dense=pruned, pruned=pruned)
    names = ["small", "small.onnx", "report.html"]
    assert found.files == tuple(tmp_path / name for name in names)
    assert all(path.exists() for path in found.files)
    assert found.missing == ()
    assert load_pruned(LeNet5(), tmp_path / "small").conv1.out_channels == 20


@pytest.mark.usefixtures("small_report")
def test_what_is_not_installed_is_left_out_and_said(pruned, tmp_path, monkeypatch):
    def refuse(*_):
        raise MissingPackageError("install onnx")

    monkeypatch.setattr(delivering, "to_onnx", refuse)
    found = deliver(tmp_path, dense=pruned, pruned=pruned)
    assert [path.name for path in found.files] == ["small", "report.html"]
    assert found.missing == ("install onnx",)

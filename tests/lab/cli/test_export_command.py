import json
import shutil

import pytest
import torch
from torch import nn

import diffprune as dp
from diffprune.lab.runs.rebuild import rebuild


@pytest.fixture(scope="module")
def models(finished):
    return rebuild(finished / "runs/mine", trust=True)


def read_onnx(path, inputs):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})
    return torch.from_numpy(found)


def read_pt2(path, inputs):
    return torch.export.load(path).module()(inputs)


def read_safetensors(path, inputs):
    fresh = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    return dp.load_pruned(fresh, path)(inputs)


@pytest.mark.parametrize(
    ("to", "name", "read"),
    [
        ("onnx", "small.onnx", read_onnx),
        ("pt2", "small.pt2", read_pt2),
        ("safetensors", "small", read_safetensors),
    ],
)
def test_what_is_written_computes_the_same(
    in_finished, finished, models, to, name, read
):
    done = in_finished("export", "runs/mine", "--to", to)
    assert done.exit_code == 0, done.stderr
    assert f"Written to runs/mine/{name}" in done.stdout
    assert "Use it:" in done.stderr
    with torch.no_grad():
        actual = read(finished / "runs/mine" / name, models.inputs)
        torch.testing.assert_close(actual, models.small(models.inputs))


def test_a_run_is_not_overwritten(in_finished, finished):
    before = (finished / "runs/mine/model.safetensors").read_bytes()
    done = in_finished(
        "export", "runs/mine", "--to", "safetensors", "--out", "runs/mine"
    )
    assert (done.exit_code, done.stdout) == (1, "")
    assert "`runs/mine` holds a run" in done.stderr
    assert (finished / "runs/mine/model.safetensors").read_bytes() == before


def test_json_says_where_and_how_large(in_finished, tmp_path):
    out = tmp_path / "new" / "net"
    done = in_finished(
        "export", "runs/mine", "--to", "safetensors", "--out", str(out), "--json"
    )
    size = sum(file.stat().st_size for file in out.iterdir())
    expected = {"format": "safetensors", "path": str(out), "bytes": size}
    assert json.loads(done.stdout) == expected


def test_a_missing_package_is_named(in_finished, monkeypatch):
    monkeypatch.setattr("diffprune._export.onnx.find_spec", lambda _: None)
    done = in_finished("export", "runs/mine", "--to", "onnx")
    assert done.exit_code == 1
    assert "pip install 'diffprune[export]'" in done.stderr


def test_a_damaged_network_is_explained(diffprune, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "copy")
    (tmp_path / "copy/runs/mine/model.safetensors").write_bytes(b"half of it")
    done = diffprune("export", "copy/runs/mine", "--to", "pt2")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "does not fit its task, or is damaged" in done.stderr


def test_a_copied_run_finds_its_task_beside_it(diffprune, finished, tmp_path):
    shutil.copytree(finished, tmp_path / "elsewhere")
    done = diffprune("export", "elsewhere/runs/mine", "--to", "safetensors")
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["runs/task-seed0", "--to", "pt2"], 1, "is unfinished"),
        (["nowhere", "--to", "pt2"], 1, "`nowhere` holds no run"),
        (["runs/task-seed0", "--to", "tflite"], 2, "tflite"),
        (["runs/task-seed0"], 2, "--to"),
    ],
)
def test_what_cannot_be_done_is_explained(
    unfinished, diffprune, arguments, code, message
):
    assert unfinished.exit_code == 130
    done = diffprune("export", *arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert message in done.stderr

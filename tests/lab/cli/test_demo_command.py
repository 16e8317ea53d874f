import json
import sys
from pathlib import Path

import pytest
import torch

from diffprune.lab.demo.demo_deliver import Delivery
from diffprune.lab.digits import load_digits
from diffprune.lab.image_batches import Split
from paper.lenet5_tasks import digits_sigmoid


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A hundred digits of each kind, and nothing exported."""
    everything = load_digits()
    few = Split(*(part.take(torch.arange(100)) for part in vars(everything).values()))
    monkeypatch.setattr("paper.lenet5_tasks.load_digits", lambda: few)
    delivery = Delivery((Path("here/small"),), ("no ONNX",))
    monkeypatch.setattr(
        "diffprune.lab.demo.demo_run.deliver", lambda *_, **__: delivery
    )


def test_demo_prints_a_table_and_says_where_the_files_are(diffprune, tmp_path):
    done = diffprune("demo", "--epochs", "1", "--out", "here")
    assert done.exit_code == 0
    assert "20-50-800-500" in done.stdout
    assert "2,293,000" in done.stdout
    assert "Written to here:" in done.stdout
    assert "small          the small network" in done.stdout
    assert "left out       no ONNX" in done.stdout
    assert (tmp_path / "here" / "summary.json").exists()


def test_the_usual_number_of_epochs_is_the_recipes(diffprune):
    usual = f"[default: {digits_sigmoid().epochs}]"
    assert usual in diffprune("demo", "--help").stdout


def test_json_is_all_there_is_on_stdout(diffprune, tmp_path):
    done = diffprune("demo", "--epochs", "1", "--json")
    summary = json.loads(done.stdout)
    assert summary == json.loads((tmp_path / "runs/demo/summary.json").read_text())
    assert summary["dense"]["macs"] == 2_293_000
    assert "loss" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "0"], "training needs at least one epoch, got 0"),
        (["--out", "taken"], "cannot write into `taken/dense`: Not a directory"),
        (
            ["--out", "taken/deeper"],
            "cannot write into `taken/deeper/dense`: Not a directory",
        ),
    ],
)
def test_failures_exit_with_1_and_a_message(diffprune, tmp_path, arguments, message):
    (tmp_path / "taken").touch()
    done = diffprune("demo", *arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_package_is_named_with_its_brackets(diffprune, monkeypatch):
    monkeypatch.setattr("paper.lenet5_tasks.load_digits", load_digits)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    done = diffprune("demo", "--epochs", "1")
    assert done.exit_code == 1
    assert "pip install 'diffprune[demo]'" in done.stderr

import json
import re
import sys

import pytest
import torch

from diffprune.errors import MissingPackageError
from diffprune.lab.digits import digits_recipe, load_digits
from diffprune.lab.image_batches import Split


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A hundred digits of each kind, and nothing exported."""
    everything = load_digits()
    few = Split(*(part.take(torch.arange(100)) for part in vars(everything).values()))
    monkeypatch.setattr("diffprune.lab.digits.load_digits", lambda: few)

    def refuse(*_):
        raise MissingPackageError("no ONNX")

    for name in ("to_onnx", "write_report"):
        monkeypatch.setattr(f"diffprune.lab.demo.{name}", refuse)


def test_demo_prints_a_table_and_says_where_the_files_are(diffprune, tmp_path):
    done = diffprune("demo", "--epochs", "1", "--out", "here")
    assert done.exit_code == 0, done.stderr
    assert "2,293,000" in done.stdout
    assert "Written to here:" in done.stdout
    assert "the small network, for `diffprune.load_pruned`" in done.stdout
    assert re.search("left out +no ONNX", done.stdout)
    assert (tmp_path / "here" / "summary.json").exists()


def test_the_usual_number_of_epochs_is_the_recipes(diffprune):
    usual = f"[default: {digits_recipe().epochs}]"
    assert usual in diffprune("demo", "--help").stdout


def test_json_is_all_there_is_on_stdout(diffprune, tmp_path):
    done = diffprune("demo", "--epochs", "1", "--json")
    summary = json.loads(done.stdout)
    assert summary == json.loads((tmp_path / "runs/demo/summary.json").read_text())
    assert summary["dense"]["macs"] == 2_293_000
    assert "loss" in done.stderr


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("taken", "cannot write into `taken/dense`: Not a directory"),
        ("taken/deeper", "cannot write into `taken/deeper/dense`: Not a directory"),
    ],
)
def test_failures_exit_with_1_and_a_message(diffprune, tmp_path, out, message):
    (tmp_path / "taken").touch()
    done = diffprune("demo", "--out", out)
    assert (done.exit_code, done.stdout) == (1, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_package_is_named_with_its_brackets(diffprune, monkeypatch):
    monkeypatch.setattr("diffprune.lab.digits.load_digits", load_digits)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    done = diffprune("demo", "--epochs", "1")
    assert done.exit_code == 1
    assert "pip install 'diffprune[demo]'" in done.stderr

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from diffprune.cli import app


@pytest.fixture
def diffprune(monkeypatch, tmp_path):
    """Run a command in an empty directory, on a wide screen without colours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    return lambda *arguments: CliRunner().invoke(app, arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["demo", "--help"],
        ["train", "--help"],
        ["reproduce", "--help"],
        ["--version"],
    ],
)
def test_help_and_version_do_not_import_torch(arguments):
    script = (
        "import sys; from diffprune.cli import app\n"
        "try: app(sys.argv[1:])\n"
        "except SystemExit as end: assert not end.code\n"
        "assert 'torch' not in sys.modules, 'torch was imported'"
    )
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    assert (done.returncode, done.stderr) == (0, "")


def test_help_teaches_with_an_example(diffprune):
    assert "diffprune demo --seed 1" in diffprune("--help").stdout
    assert "diffprune demo --json" in diffprune("demo", "--help").stdout


def test_version(diffprune):
    from importlib.metadata import version

    assert diffprune("--version").stdout == f"diffprune {version('diffprune')}\n"


def test_demo_prints_a_table_and_says_where_the_files_are(diffprune, tmp_path):
    done = diffprune("demo", "--epochs", "1", "--out", "here")
    assert done.exit_code == 0
    assert "20-50-800-500" in done.stdout
    assert "2,293,000" in done.stdout
    assert "Written to here: metrics.jsonl, summary.json" in done.stdout
    assert (tmp_path / "here" / "summary.json").exists()


def test_the_usual_number_of_epochs_is_the_recipes(diffprune):
    from diffprune.experiment.builtin import digits_sigmoid

    usual = f"[default: {digits_sigmoid().epochs}]"
    (line,) = [
        x for x in diffprune("demo", "--help").stdout.splitlines() if "--epochs" in x
    ]
    assert usual in line


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
    monkeypatch.setitem(sys.modules, "sklearn", None)
    done = diffprune("demo", "--epochs", "1")
    assert done.exit_code == 1
    assert "pip install 'diffprune[demo]'" in done.stderr


@pytest.mark.parametrize("arguments", [["demo", "--epochs", "many"], ["dmeo"]])
def test_misuse_exits_with_2(diffprune, arguments):
    assert diffprune(*arguments).exit_code == 2


TASK = """
import torch
from torch import nn
from diffprune.experiment import Task
from diffprune.recipes.examples import Batches, Examples

def task(recipe):
    x = torch.rand(32, 3)
    data = Examples(x, (x[:, 0] > x[:, 1]).long())
    return Task(
        model=nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)),
        train=Batches(data, recipe.batch_size, shuffle=True),
        test=Batches(data, 32),
    )
"""


def test_train_runs_a_task_of_the_users_own(diffprune, tmp_path):
    (tmp_path / "mine.py").write_text(TASK)
    done = diffprune(
        "train", "mine.py:task", "--epochs", "2", "--batch-size", "8", "--seed", "5"
    )
    assert done.exit_code == 0, done.stderr
    assert "test error" in done.stdout
    assert "Written to runs/task-seed5" in done.stdout
    recipe = json.loads((tmp_path / "runs/task-seed5/recipe.json").read_text())
    assert (recipe["epochs"], recipe["batch_size"], recipe["seed"]) == (2, 8, 5)


def test_ctrl_c_says_how_to_go_on(diffprune, tmp_path):
    stop = "import signal; signal.raise_signal(signal.SIGINT)"
    interrupting = TASK.replace(
        "def task", f"def task(recipe):\n    {stop}\n    return now(recipe)\n\ndef now"
    )
    (tmp_path / "mine.py").write_text(interrupting)
    done = diffprune("train", "mine.py:task")
    assert done.exit_code == 130
    assert "Stopped; the same command continues in runs/task-seed0." in done.stderr
    (tmp_path / "mine.py").write_text(TASK)
    assert diffprune("train", "mine.py:task").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "lenet6"], "no task is called `lenet6`; there are `lenet5-mnist`"),
        (["reproduce", "alexnet"], "there is no `alexnet`; type `lenet5`"),
        (["reproduce", "lenet5", "--results", "empty"], "`empty` holds no records"),
        (
            ["train", "lenet5-mnist", "--data-dir", "empty"],
            "`empty/train-images-idx3-ubyte` is missing",
        ),
    ],
)
def test_what_cannot_be_found_is_explained(diffprune, monkeypatch, arguments, message):
    monkeypatch.setenv("DIFFPRUNE_DATA", "")  # undone afterwards, whatever is set
    done = diffprune(*arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert message in done.stderr

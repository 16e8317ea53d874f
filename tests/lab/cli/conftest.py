import pytest
from typer.testing import CliRunner

from diffprune.lab.cli import app

TASK = """
import torch
from torch import nn
from diffprune.lab import Task
from diffprune.lab.image_batches import Batches, Examples

def task(recipe):
    x = torch.rand(32, 3)
    data = Examples(x, (x[:, 0] > x[:, 1]).long())
    return Task(
        model=nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)),
        train=Batches(data, recipe.batch_size, shuffle=True),
        test=Batches(data, 32),
    )

def model():
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
"""


@pytest.fixture
def diffprune(monkeypatch, tmp_path):
    """Run a command in an empty directory, on a wide screen without colours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("DIFFPRUNE_DATA", "")  # undone afterwards, whatever is set
    return lambda *arguments: CliRunner().invoke(app, arguments)


@pytest.fixture
def source(tmp_path):
    """What `mine.py` holds, which the test may change."""
    (tmp_path / "mine.py").write_text(TASK)
    return TASK


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A folder with `mine.py`, and a finished run of it in `runs/mine`."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "mine.py").write_text(TASK)
    arguments = [
        *("train", "mine.py:task", "--epochs", "3", "--batch-size", "2"),
        *("--strength", "0.03", "--gate-lr", "0.03", "--out", "runs/mine"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.stderr
    return folder


@pytest.fixture
def in_finished(diffprune, finished, monkeypatch):
    """Run a command where there is a finished run."""
    monkeypatch.chdir(finished)
    return diffprune


@pytest.fixture
def unfinished(diffprune, tmp_path, source):
    """A run that was stopped before its first epoch, in `runs/task-seed0`."""
    stop = "import signal; signal.raise_signal(signal.SIGINT)"
    interrupting = source.replace(
        "def task", f"def task(recipe):\n    {stop}\n    return now(recipe)\n\ndef now"
    )
    (tmp_path / "mine.py").write_text(interrupting)
    done = diffprune("train", "mine.py:task")
    (tmp_path / "mine.py").write_text(source)
    return done

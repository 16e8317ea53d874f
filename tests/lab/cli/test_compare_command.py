import json

import pytest
from typer.testing import CliRunner

from diffprune.lab.cli import app


@pytest.fixture(scope="module")
def dense(finished):
    """A dense run beside the finished one."""
    asked = ["train", "mine.py:task", "--dense", "--epochs", "2", "--out", "runs/dense"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(finished)
        assert CliRunner().invoke(app, asked).exit_code == 0


def row(text, name):
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return line.removeprefix(name).split()


@pytest.mark.usefixtures("dense")
def test_runs_are_shown_side_by_side(in_finished, finished):
    done = in_finished("compare", "runs/dense", "runs/mine")
    assert done.exit_code == 0, done.stderr
    left = json.loads((finished / "runs/mine/summary.json").read_text())
    count = left["parameters"]
    assert row(done.stdout, "parameters") == ["50", f"{count}", f"({count / 50:.1%})"]
    assert row(done.stdout, "strength") == ["none", "0.03"]
    assert row(done.stdout, "epochs") == ["2", "3"]
    assert "weight_decay" not in done.stdout  # the same in both


@pytest.mark.usefixtures("dense")
def test_json_is_a_list_of_runs(in_finished, finished):
    done = in_finished("compare", "runs/dense", "runs/mine", "--json")
    dense, mine = json.loads(done.stdout)
    left = json.loads((finished / "runs/mine/summary.json").read_text())
    assert (dense["folder"], dense["units"], dense["parameters"]) == (
        "runs/dense",
        {},
        50,
    )
    assert mine["is_finished"]
    assert mine["units"] == left["effective"]
    assert mine["recipe"]["strength"] == 0.03
    assert 0 <= mine["worst_relative_difference"] < 1e-5


def test_an_unfinished_run_says_so(unfinished, diffprune):
    assert unfinished.exit_code == 130
    done = diffprune("compare", "runs/task-seed0")
    assert row(done.stdout, "epochs") == ["0", "of", "10"]
    done = diffprune("compare", "runs/task-seed0", "--json")
    (run,) = json.loads(done.stdout)
    assert (run["is_finished"], run["macs"]) == (False, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [(None, "`run` holds no run"), ("{", "the run in `run` is damaged")],
)
def test_what_cannot_be_read_is_explained(diffprune, tmp_path, text, message):
    (tmp_path / "run").mkdir()
    if text is not None:
        (tmp_path / "run" / "recipe.json").write_text(text)
    done = diffprune("compare", "run")
    assert (done.exit_code, done.stdout) == (1, "")
    assert message in done.stderr


def test_no_runs_is_misuse(diffprune):
    assert diffprune("compare").exit_code == 2

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("source")

RECIPE = """
from diffprune.lab import Recipe

def numbers(seed):
    return Recipe(name="numbers", epochs=2, lr=0.125, seed=seed)
"""


def recipe_of(folder):
    return json.loads((folder / "recipe.json").read_text())


def test_a_task_of_the_users_own(diffprune, tmp_path):
    done = diffprune(
        "train", "mine.py:task", "--epochs", "2", "--batch-size", "8", "--seed", "5"
    )
    assert done.exit_code == 0, done.stderr
    assert "test error" in done.stdout
    assert "Written to runs/task-seed5" in done.stdout
    recipe = recipe_of(tmp_path / "runs/task-seed5")
    assert (recipe["epochs"], recipe["batch_size"], recipe["seed"]) == (2, 8, 5)


@pytest.mark.parametrize(
    ("gate_lr", "advice"),
    [("1e-9", "Nothing was removed"), ("0.1", "Next:  diffprune")],
)
def test_there_is_advice_on_what_to_do_next(diffprune, gate_lr, advice):
    asked = ("--epochs", "1", "--batch-size", "1", "--gate-lr", gate_lr)
    asked = (*asked, "--strength", "1e-4")
    done = diffprune("train", "mine.py:task", *asked)
    assert advice in done.stderr


def test_a_run_that_failed_at_once_is_not_in_the_way(diffprune, tmp_path, source):
    wrong = source.replace("return Task(", "return dict(") + "# of another length\n"
    (tmp_path / "mine.py").write_text(wrong)
    done = diffprune("train", "mine.py:task", "--epochs", "1")
    assert done.exit_code == 1
    assert "the task is a dict, where a `diffprune.lab.Task` is needed" in done.stderr
    (tmp_path / "mine.py").write_text(source)
    assert diffprune("train", "mine.py:task", "--epochs", "2").exit_code == 0


def test_an_error_in_the_task_is_shown_from_there(diffprune, tmp_path, source):
    broken = source.replace("x = torch.rand(32, 3)", "x = torch.load('nothing.pt')")
    (tmp_path / "mine.py").write_text(broken)
    done = diffprune("train", "mine.py:task")
    assert done.exit_code == 1
    assert "No such file or directory: 'nothing.pt'" in done.stderr
    first, *_ = [line for line in done.stderr.splitlines() if "File " in line]
    assert "mine.py" in first
    assert "cli/train.py" not in done.stderr


def test_json_is_what_came_out(diffprune, tmp_path):
    done = diffprune("train", "mine.py:task", "--epochs", "1", "--json")
    found = json.loads(done.stdout)
    saved = json.loads((tmp_path / "runs/task-seed0/summary.json").read_text())
    assert (found["folder"], found["is_finished"]) == ("runs/task-seed0", True)
    for name in ("parameters", "macs", "test_error"):
        assert found[name] == saved[name]
    assert found["units"] == saved["effective"]


def test_a_dense_run_has_no_gates_and_a_folder_of_its_own(diffprune, tmp_path):
    done = diffprune("train", "mine.py:task", "--epochs", "1", "--dense")
    assert done.stdout.startswith("50 parameters")
    assert recipe_of(tmp_path / "runs/task-dense-seed0")["strength"] is None


@pytest.mark.parametrize("name", ["mine.py:numbers", "runs/first"])
def test_a_recipe_is_a_function_or_that_of_another_run(
    diffprune, tmp_path, source, name
):
    (tmp_path / "mine.py").write_text(source + RECIPE)
    first = ("--epochs", "2", "--lr", "0.125", "--out", "runs/first")
    assert diffprune("train", "mine.py:task", *first).exit_code == 0
    chosen = ("--recipe", name, "--epochs", "1", "--out", "runs/second")
    assert diffprune("train", "mine.py:task", *chosen).exit_code == 0
    recipe = recipe_of(tmp_path / "runs/second")
    assert (recipe["lr"], recipe["epochs"]) == (0.125, 1)


def test_ctrl_c_says_how_to_go_on(unfinished, diffprune, tmp_path):
    assert unfinished.exit_code == 130
    assert "`diffprune train runs/task-seed0` goes on" in unfinished.stderr
    done = diffprune("train", "runs/task-seed0")
    assert done.exit_code == 0, done.stderr
    assert (tmp_path / "runs/task-seed0/summary.json").exists()


def test_the_same_command_goes_on_too(unfinished, diffprune):
    assert unfinished.exit_code == 130
    assert diffprune("train", "mine.py:task").exit_code == 0


def test_by_default_half_of_the_multiply_adds_may_be_left(diffprune, tmp_path):
    done = diffprune("train", "mine.py:task", "--batch-size", "2", "--json")
    assert json.loads(done.stdout)["macs"] <= 20  # of 40
    assert recipe_of(tmp_path / "runs/task-seed0")["budget"] == {"macs": 0.5}


def test_layers_are_frozen_and_widths_are_multiples(diffprune, tmp_path):
    asked = ("--epochs", "1", "--strength", "1", "--gate-lr", "1", "--round-to", "4")
    done = diffprune("train", "mine.py:task", *asked, "--batch-size", "2", "--json")
    assert json.loads(done.stdout)["units"]["0"] % 4 == 0
    assert recipe_of(tmp_path / "runs/task-seed0")["pruner"] == {"round_to": 4}
    frozen = (*asked, "--freeze", "0", "--out", "frozen")
    assert "nothing" in diffprune("train", "mine.py:task", *frozen).stderr.lower()


def test_a_budget_is_met(diffprune, tmp_path):
    asked = ("--epochs", "10", "--batch-size", "2", "--budget", "macs=0.5")
    done = diffprune("train", "mine.py:task", *asked, "--json")
    assert done.exit_code == 0, done.stderr
    assert 0 < json.loads(done.stdout)["macs"] <= 20  # of 40
    assert recipe_of(tmp_path / "runs/task-seed0")["budget"] == {"macs": 0.5}


def test_events_for_tensorboard_are_in_the_run_folder(diffprune, tmp_path):
    pytest.importorskip("tensorboard")
    done = diffprune("train", "mine.py:task", "--epochs", "1", "--tensorboard")
    assert done.exit_code == 0, done.stderr
    assert list((tmp_path / "runs/task-seed0/tensorboard").glob("events*"))


def test_a_missing_package_is_named(diffprune, monkeypatch):
    monkeypatch.setattr("diffprune.lab.tensorboard_events.find_spec", lambda _: None)
    done = diffprune("train", "mine.py:task", "--epochs", "1", "--tensorboard")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "pip install 'diffprune[tensorboard]'" in done.stderr


def test_what_the_users_code_prints_is_no_result(diffprune, tmp_path, source):
    loud = "print('loading')\n" + source.replace(
        "    x =", "    print('data')\n    x ="
    )
    (tmp_path / "mine.py").write_text(loud)
    done = diffprune("train", "mine.py:task", "--epochs", "1", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["epochs"] == 1
    assert "loading" in done.stderr
    assert "data" in done.stderr


def test_commands_to_type_next_are_quoted(diffprune):
    done = diffprune("train", "mine.py:task", "--epochs", "1", "--out", "my runs/a b")
    assert done.exit_code == 0, done.stderr
    assert "diffprune export 'my runs/a b' --to onnx" in done.stderr


def test_as_a_program(tmp_path):
    command = [sys.executable, "-m", "diffprune", "train", "mine.py:task"]
    arguments = ["--epochs", "1", "--json"]
    done = subprocess.run(  # noqa: S603 - our own words
        [*command, *arguments], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["folder"] == "runs/task-seed0"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lenet6"], "no task is called `lenet6`; there are `digits`"),
        (["mine.py"], "`mine.py` is a file; which function in it?"),
        (["mine.py:tusk"], "`mine.py` has no function `tusk`; it has `task`"),
        (["mine.py:task", "--recipe", "no.py:f"], "there is no file `no.py`"),
        (["mine.py:task", "--dense", "--strength", "1"], "it takes no `--strength`"),
        (["mine.py:task", "--dense", "--budget", "macs=1"], "it takes no `--budget`"),
        (
            ["mine.py:task", "--strength", "1", "--budget", "macs=0.5"],
            "`--budget` finds its own strength",
        ),
        (["mine.py:task", "--budget", "mcas=0.5"], "there are `macs`"),
        (["."], "`.` holds no run"),
    ],
)
def test_what_cannot_be_done_is_explained(diffprune, arguments, message):
    done = diffprune("train", *arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert message in done.stderr


@pytest.mark.parametrize("option", [["--dense"], ["--recipe", "mine.py:numbers"]])
def test_a_run_goes_on_with_its_own_recipe(in_finished, option):
    done = in_finished("train", "runs/mine", *option)
    assert done.exit_code == 1
    assert f"goes on with its own recipe: leave out `{option[0]}`" in done.stderr


def test_a_finished_run_is_not_trained_again(in_finished):
    done = in_finished("train", "runs/mine")
    assert done.exit_code == 1
    assert "holds this very run, finished" in done.stderr


def test_of_a_loss_that_fails_the_users_code_is_shown(diffprune, tmp_path, source):
    lines = "def loss(outputs, targets):\n    return outputs.nothing\n"
    changed = source.replace("    return Task(", "    return Task(loss=loss,")
    (tmp_path / "mine.py").write_text(lines + changed)
    done = diffprune("train", "mine.py:task", "--dense")
    assert done.exit_code == 1
    assert "line 2, in loss\n    return outputs.nothing" in done.stderr
    assert "Error: the loss of the task does not take" in done.stderr
    assert "loop.py" not in done.stderr

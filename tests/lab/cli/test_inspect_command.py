import json

import pytest


@pytest.mark.usefixtures("source")
def test_a_model_of_the_users_own(diffprune):
    done = diffprune("inspect", "mine.py:model", "--input", "1,3")
    assert done.exit_code == 0, done.stderr
    assert (
        "mine.py:model: 1 group, 50 parameters, 40 MACs for these inputs\n"
        in done.stdout
    )
    assert "an output of the model" in done.stdout


@pytest.mark.usefixtures("source")
def test_json_has_everything(diffprune):
    done = diffprune("inspect", "mine.py:model", "--input", "1,3", "--json")
    found = json.loads(done.stdout)
    assert (found["parameters"], found["macs"]) == (50, 40)
    assert found["groups"] == [
        {
            "name": "0",
            "units": 8,
            "parameters_per_unit": 6,
            "macs_per_unit": 5,
            "parameter_share": 0.96,
            "mac_share": 1.0,
            "axes": [["0.weight", 0], ["0.bias", 0], ["2.weight", 1]],
        }
    ]
    assert {"name": "2", "units": 2, "why": "an output of the model"} in found["frozen"]


@pytest.mark.usefixtures("source")
def test_what_is_to_be_frozen_is(diffprune):
    done = diffprune("inspect", "mine.py:model", "--input", "1,3", "--freeze", "0")
    assert "0 groups" in done.stdout
    assert "asked for with freeze='0'" in done.stdout


def test_a_run_is_shown_as_it_came_out(in_finished, finished):
    done = in_finished("inspect", "runs/mine", "--json")
    left = json.loads((finished / "runs/mine/summary.json").read_text())
    found = json.loads(done.stdout)
    assert (found["parameters"], found["macs"]) == (left["parameters"], left["macs"])
    assert found["groups"][0]["units"] == left["effective"]["0"] < 8
    epochs = (finished / "runs/mine/metrics.jsonl").read_text().splitlines()
    worth = json.loads(epochs[-1])["worth"]
    assert found["groups"][0]["worth"] == worth["0"] > 0
    assert "worth" in in_finished("inspect", "runs/mine").stdout


def test_the_task_of_a_run_may_have_moved(in_finished, finished, tmp_path):
    moved = tmp_path / "moved.py"
    moved.write_text((finished / "mine.py").read_text())
    done = in_finished("inspect", "runs/mine", "--task", f"{moved}:task")
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mine.py:model"], "what does the model take? Add `--input 1,3,224,224`"),
        (["mine.py:model", "--input", "1x3"], "`1x3` is no shape"),
        (["mine.py:model", "--input", "1,4"], "does not accept the example inputs"),
        (["mine.py:model", "--input", "1,4"], "for integers its type, `--input int64"),
        (["mine.py:model", "--input", "1,3", "--freeze", "9"], "no layer matches `9`"),
        (["."], "`.` holds no run"),
    ],
)
@pytest.mark.usefixtures("source")
def test_what_cannot_be_done_is_explained(diffprune, arguments, message):
    done = diffprune("inspect", *arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert message in done.stderr


def test_an_unfinished_run_says_how_to_finish_it(unfinished, diffprune):
    assert unfinished.exit_code == 130
    done = diffprune("inspect", "runs/task-seed0")
    assert done.exit_code == 1
    assert "has 0 of 10 epochs" in done.stderr
    assert "`diffprune train runs/task-seed0`" in done.stderr

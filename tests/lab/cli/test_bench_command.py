import json

import pytest


def test_networks_are_shown_as_ratios(in_finished):
    done = in_finished("bench", "runs/mine", "--rounds", "2", "--no-onnx")
    assert done.exit_code == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0][:4] == ["network", "engine", "ms", "speed"]
    assert lines[1][:2] == ["dense", "eager"]
    assert lines[1][3] == "1.00x"
    assert {"dense", "gated", "small"} == {line[0] for line in lines[1:]}


def test_json_is_a_list_of_measurements(in_finished):
    done = in_finished("bench", "runs/mine", "--rounds", "2", "--no-onnx", "--json")
    first, *_ = json.loads(done.stdout)
    assert (first["network"], first["engine"], first["ratio"]) == ("dense", "eager", 1)
    assert first["memory"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "`nowhere` holds no run"),
        (["runs/task-seed0"], "is unfinished"),
        (["runs/task-seed0", "--task", "no.py:f"], "is unfinished"),
    ],
)
def test_what_cannot_be_measured_is_explained(
    unfinished, diffprune, arguments, message
):
    assert unfinished.exit_code == 130
    done = diffprune("bench", *arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert message in done.stderr


def test_a_task_that_is_gone_is_named(in_finished):
    done = in_finished("bench", "runs/mine", "--task", "gone.py:task")
    assert done.exit_code == 1
    assert "there is no file `gone.py`" in done.stderr

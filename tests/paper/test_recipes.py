"""The list of all tasks."""

import json

import pytest

from diffprune.lab.runs.import_spec import find_callable
from paper import recipes
from paper.records import RESULTS


def test_names_of_recipes_are_those_of_their_tasks():
    for name, (_, make_recipe) in recipes.TASKS.items():
        assert make_recipe(0).name == name


@pytest.mark.parametrize("table", ["lenet5", "wrn", "wrn-10-1", "frontier", "table1"])
def test_tasks_of_records_can_be_found(table):
    """They are named as functions of files, which may have been divided since."""
    for path in (RESULTS / table).glob("*/task.json"):
        task = json.loads(path.read_text())["task"]
        assert task is None or find_callable(task)

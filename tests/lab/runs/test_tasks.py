import pytest

from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.lab.runs.tasks import BUILTIN, load_recipe, load_task

SOURCE = """
from torch import nn
def mine(recipe):
    return recipe.epochs
other = 3
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


@pytest.mark.parametrize("name", BUILTIN)
def test_built_in_tasks_have_names_and_recipes(name):
    make_task, make_recipe = load_task(name)
    assert (make_task, make_recipe) == BUILTIN[name]
    assert make_recipe(3).seed == 3


def test_a_function_in_a_file_is_a_task(file):
    make_task, make_recipe = load_task(f"{file}:mine")
    recipe = make_recipe(2)
    assert (recipe.name, recipe.seed) == ("mine", 2)
    assert make_task(recipe) == recipe.epochs


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lenet6", "no task is called `lenet6`; there are `digits`"),
        ("{file}:yours", "has no function `yours`; it has `mine`"),
        ("{file}:other", "has no function `other`"),
        ("nowhere.py:mine", "there is no file `nowhere.py`"),
    ],
)
def test_names_that_lead_nowhere_are_explained(file, name, message):
    with pytest.raises(UnknownNameError, match=message):
        load_task(name.format(file=file))


def test_a_task_is_a_function_of_a_recipe(tmp_path):
    (tmp_path / "none.py").write_text("def model(): pass")
    with pytest.raises(ArgumentError, match="A task is a function of a recipe"):
        load_task(f"{tmp_path}/none.py:model")


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("mine", r"mine\(0\)` fails: AttributeError: .*\nA recipe is a function of a"),
        ("none", r"none\(0\)` fails: TypeError: .*\nA recipe is a function of a seed"),
        ("one", r"one` returns 1\.\nA recipe is a function of a seed"),
    ],
)
def test_a_recipe_is_a_function_of_a_seed(file, name, match):
    file.write_text(f"{SOURCE}def none(): pass\ndef one(seed): return 1")
    with pytest.raises(ArgumentError, match=match):
        load_recipe(f"{file}:{name}")(0)

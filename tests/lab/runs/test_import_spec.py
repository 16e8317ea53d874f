import functools
import sys

import pytest

from diffprune.errors import ArgumentError, UnknownNameError
from diffprune.lab.runs.import_spec import find_callable, spell

SOURCE = """
from dataclasses import dataclass
from {sibling} import width

@dataclass
class Settings:
    width: int = width

def mine():
    return Settings().width
"""


@pytest.fixture
def folder(tmp_path, monkeypatch, request):
    """A file that imports its neighbour; module names are unique to each test."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    sibling = f"sibling_{request.node.name}".split("[", maxsplit=1)[0]
    (tmp_path / f"{sibling}.py").write_text("width = 7")
    (tmp_path / "mine.py").write_text(SOURCE.format(sibling=sibling))
    return tmp_path


def test_a_file_may_import_its_neighbours(folder):
    assert find_callable(f"{folder}/mine.py:mine")() == 7


def test_a_file_of_a_package_is_told_its_name_as_a_module(folder, monkeypatch):
    monkeypatch.chdir(folder)
    package = folder / "outer" / "inner"
    package.mkdir(parents=True)
    (folder / "outer" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "width.py").write_text("width = 7")
    (package / "own.py").write_text("from .width import width\ndef f(): return width")
    with pytest.raises(ArgumentError, match=r"module, `outer\.inner\.own:"):
        find_callable("outer/inner/own.py:f")
    assert find_callable("outer.inner.own:f")() == 7


def test_a_module_is_looked_for_in_the_present_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "own_module.py").write_text("def f(): return 3")
    assert find_callable("own_module:f")() == 3


def test_a_function_is_spelt_so_that_it_is_found_from_its_folder(folder, monkeypatch):
    run = folder / "runs" / "one"
    run.mkdir(parents=True)
    spelt = spell(find_callable(f"{folder}/mine.py:mine"), run)
    assert spelt == "../../mine.py:mine"
    monkeypatch.chdir(run)
    assert find_callable(spelt)() == 7


def test_a_run_behind_a_link_finds_its_task(folder):
    (folder / "far" / "away").mkdir(parents=True)
    (folder / "runs").symlink_to(folder / "far" / "away")
    spelt = spell(find_callable(f"{folder}/mine.py:mine"), folder / "runs" / "one")
    (folder / "runs" / "one").mkdir()
    assert find_callable(f"{folder}/runs/one/{spelt}")() == 7


def test_a_decorated_function_is_where_it_is_written(folder):
    function = find_callable(f"{folder}/mine.py:mine")

    @functools.wraps(function)
    def decorated(*arguments):
        return function(*arguments)

    assert spell(decorated, folder) == "mine.py:mine"


def test_a_script_that_trains_says_what_to_guard(folder):
    (folder / "script.py").write_text(
        "from diffprune import lab\n"
        "def task(recipe): ...\n"
        "lab.train(task, lab.Recipe(name='a', epochs=1), out='runs/a')\n"
    )
    match = r"script\.py` was read for .*\nPut .*`if __name__ == \"__main__\":`"
    with pytest.raises(ArgumentError, match=match):
        find_callable(f"{folder}/script.py:task")
    assert find_callable(f"{folder}/mine.py:mine")() == 7


@pytest.mark.parametrize("function", [lambda: 0, functools.partial(print), print])
def test_what_has_no_place_is_not_spelt(function, tmp_path):
    assert spell(function, tmp_path) is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nowhere.py:f", "there is no file `nowhere.py`"),
        ("no.such.module:f", "there is no module `no`"),
        ("{folder}/mine.py:f", "has no function `f`; it has `Settings`, `mine`"),
        ("math:sqroot", "`math` has no function `sqroot`"),
    ],
)
def test_names_that_lead_nowhere_are_explained(folder, spec, message):
    with pytest.raises(UnknownNameError, match=message):
        find_callable(spec.format(folder=folder))


def test_other_files_are_refused(folder):
    (folder / "mine.txt").touch()
    with pytest.raises(ArgumentError, match=r"its name lacks `\.py`"):
        find_callable(f"{folder}/mine.txt:f")


def test_what_a_module_itself_misses_is_not_hidden(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "lacking.py").write_text("import surely_not_installed")
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        find_callable("lacking:f")

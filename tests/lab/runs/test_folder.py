import contextlib
import errno
import json

import pytest

from diffprune._pruner import RemovalRecord
from diffprune.errors import ArgumentError, StorageError
from diffprune.lab.runs.folder import Folder
from diffprune.lab.runs.records import Epoch, read_run


def epoch(number: int, loss: float) -> Epoch:
    return Epoch(
        number=number, loss=loss, train_error=1.0, validation_error=None,
        test_error=1.0, raw={"a": 3}, effective={"a": 2}, parameters=1, macs=1,
        macs_per_step=3, seconds=1.0, lr=0.1, prob_open={"a": [0.5, 0.25]},
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path, recipe):
    with Folder.open(tmp_path / "deep" / "run", recipe) as folder:
        yield folder


def test_a_new_folder_holds_recipe_and_environment(folder, recipe):
    run = read_run(folder.path)
    assert run.recipe == recipe
    assert {"python", "torch", "diffprune", "date"} <= run.environment.keys()
    assert (run.epochs, run.removals, run.outcome) == ((), (), None)


def test_an_epoch_that_is_trained_again_is_recorded_once(folder):
    for number, loss in [(1, 3.0), (2, 2.0), (2, 2.5), (3, 1.0)]:
        folder.write_epoch(epoch(number, loss), [RemovalRecord(number, {"a": 2}, 1, 1)])
    run = read_run(folder.path)
    assert run.epochs == (epoch(1, 3.0), epoch(2, 2.5), epoch(3, 1.0))
    assert run.removals == (RemovalRecord(3, {"a": 2}, 1, 1),)


def test_records_are_plain_json_lines(folder):
    folder.write_epoch(epoch(1, 0.5), [])
    (line,) = (folder.path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["prob_open"] == {"a": [0.5, 0.25]}


def test_a_folder_without_a_run_is_named(tmp_path):
    with pytest.raises(ArgumentError, match=r"holds no run: there is no `recipe.json`"):
        read_run(tmp_path)


def test_a_run_says_where_its_task_is(tmp_path, recipe):
    with Folder.open(tmp_path / "run", recipe, task="../mine.py:task"):
        pass
    assert read_run(tmp_path / "run").task == "../mine.py:task"


DAMAGE = [
    ("recipe.json", "{"),
    ("recipe.json", '{"name": 1}'),
    ("recipe.json", "[]"),
    ("environment.json", "{"),
    ("environment.json", "[]"),
    ("task.json", '{"task": 3}'),
    ("metrics.jsonl", "{"),
    ("metrics.jsonl", '{"number": 1}'),
]


@pytest.mark.parametrize(("name", "text"), DAMAGE)
def test_a_damaged_run_is_explained(folder, name, text):
    (folder.path / name).write_text(text)
    with pytest.raises(ArgumentError, match="is damaged, or of another version"):
        read_run(folder.path)


@pytest.mark.parametrize(("name", "text"), DAMAGE)
def test_a_damaged_run_does_not_continue_and_is_not_written_over(
    tmp_path, recipe, name, text
):
    with Folder.open(tmp_path, recipe) as begun:
        begun.write_epoch(epoch(1, 0.5), [])
    (tmp_path / name).write_text(text)
    message = "(?s)is damaged.*cannot continue.*`--out`, or delete this one"
    with pytest.raises(ArgumentError, match=message), Folder.open(tmp_path, recipe):
        pass
    assert (tmp_path / name).read_text() == text


@pytest.mark.parametrize("name", ["recipe.json", "environment.json"])
def test_a_run_that_lacks_a_file_does_not_continue(tmp_path, recipe, name):
    with Folder.open(tmp_path, recipe) as begun:
        begun.write_epoch(epoch(1, 0.5), [])
    (tmp_path / name).unlink()
    message = f"(?s){name}.*cannot continue"
    with pytest.raises(ArgumentError, match=message), Folder.open(tmp_path, recipe):
        pass
    assert not (tmp_path / name).exists()


@pytest.fixture
def two_files(tmp_path):
    """A run of the task in `a.py`, begun; the same task is in `b.py`."""
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("def task(recipe): ...")
    return tmp_path / "run"


def test_a_run_does_not_continue_with_another_task(two_files, recipe):
    with Folder.open(two_files, recipe, "../a.py:task") as begun:
        begun.write_epoch(epoch(1, 0.5), [])
    for task in ("../b.py:task", "../a.py:other"):
        message = rf"holds a run of `.*a\.py:task`, not of `.*{task[3:]}`\.\nName"
        opened = Folder.open(two_files, recipe, task)
        with pytest.raises(ArgumentError, match=message), opened:
            pass


def test_a_run_continues_with_a_task_that_has_moved(two_files, recipe):
    with Folder.open(two_files, recipe, "../a.py:task") as begun:
        begun.write_epoch(epoch(1, 0.5), [])
    (two_files.parent / "a.py").unlink()
    for task in ("../b.py:task", "package.module:task", None):
        with Folder.open(two_files, recipe, task) as folder:
            assert folder.path == two_files


def test_a_second_writer_is_refused(folder, recipe):
    with (
        pytest.raises(ArgumentError, match="another process is writing into"),
        Folder.open(folder.path, recipe),
    ):
        pass


def test_the_lock_ends_with_the_writer(tmp_path, recipe):
    for _ in range(2):
        with (
            contextlib.suppress(ZeroDivisionError),
            Folder.open(tmp_path / "run", recipe),
        ):
            raise ZeroDivisionError


def test_a_full_disk_is_said_and_earlier_records_are_intact(folder, monkeypatch):
    folder.write_epoch(epoch(1, 0.5), [])

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("diffprune.lab.runs.folder.write_text", full)
    with pytest.raises(StorageError, match=r"No space left on device.*\n.*make room"):
        folder.write_epoch(epoch(2, 0.4), [])
    assert read_run(folder.path).epochs == (epoch(1, 0.5),)

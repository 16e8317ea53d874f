import subprocess
import sys

import pytest

from diffprune.lab.sweeps.study import Study

pytest.importorskip("optuna")


def test_names_are_taken_once_in_their_order(tmp_path):
    study, other = Study(tmp_path), Study(tmp_path)
    study.add(["a", "b", "c"])
    taken = [study.take(), other.take(), study.take(), other.take()]
    assert [one and one[1] for one in taken] == ["a", "b", "c", None]


def test_what_is_known_is_not_added_again(tmp_path):
    study = Study(tmp_path)
    study.add(["a", "b"])
    number, _ = study.take()
    study.done(number, 1.0, 2.0)
    again = Study(tmp_path)
    again.add(["a", "b", "c"])
    assert [again.take()[1], again.take()[1], again.take()] == ["b", "c", None]


def test_what_failed_is_tried_again(tmp_path):
    study = Study(tmp_path)
    study.add(["a"])
    study.failed(study.take()[0])
    assert study.take() is None
    study.add(["a"])
    assert study.take()[1] == "a"


@pytest.mark.slow
def test_the_work_of_a_process_that_died_is_taken_over(tmp_path):
    work = f"""
from pathlib import Path
from diffprune.lab.sweeps.study import Study
study = Study(Path({str(tmp_path)!r}))
study.add(["a"])
assert study.take()[1] == "a"
"""
    subprocess.run([sys.executable, "-c", work], check=True)  # noqa: S603 - our own
    study = Study(tmp_path)
    assert study.take() is None
    study.add(["a"])
    assert study.take()[1] == "a"


def test_the_front_is_what_nothing_beats(tmp_path):
    study = Study(tmp_path)
    found = {"a": (1.0, 9.0), "b": (2.0, 3.0), "c": (2.5, 4.0), "d": (5.0, 1.0)}
    study.add(list(found))
    for _ in found:
        number, name = study.take()
        study.done(number, *found[name])
    assert study.front() == {"a", "b", "d"}

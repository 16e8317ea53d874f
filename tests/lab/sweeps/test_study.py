import math
import subprocess
import sys

import pytest

from diffprune.errors import ArgumentError
from diffprune.lab.sweeps.search import Range
from diffprune.lab.sweeps.study import Study

pytest.importorskip("optuna")


def test_names_are_taken_once_in_their_order(tmp_path):
    study, other = Study(tmp_path), Study(tmp_path)
    study.add(["a", "b", "c"])
    taken = [study.take(), other.take(), study.take(), other.take()]
    assert [one and one.name for one in taken] == ["a", "b", "c", None]


def test_what_is_known_is_not_added_again(tmp_path):
    study = Study(tmp_path)
    study.add(["a", "b"])
    study.done(study.take(), (1.0, 2.0))
    again = Study(tmp_path)
    again.add(["a", "b", "c"])
    assert [again.take().name, again.take().name, again.take()] == ["b", "c", None]


def test_what_failed_is_tried_again(tmp_path):
    study = Study(tmp_path)
    study.add(["a"])
    study.failed(study.take())
    assert study.take() is None
    study.add(["a"])
    assert study.take().name == "a"


RANGES = {"lr": Range(1e-4, 1e-1), "macs": Range(0.1, 0.5)}


@pytest.mark.slow
def test_the_work_of_a_process_that_died_is_taken_over(tmp_path):
    work = f"""
from pathlib import Path
from diffprune.lab.sweeps.study import Study
study = Study(Path({str(tmp_path)!r}))
study.add(["a"])
assert study.take().name == "a"
"""
    subprocess.run([sys.executable, "-c", work], check=True)  # noqa: S603 - our own
    study = Study(tmp_path)
    assert study.take().name == "a"
    assert study.take() is None


def dies(trial, **notes):
    """Let a trial look as if its worker had worked elsewhere, and had died."""
    for name, value in ({"host": "elsewhere", "seen": 0.0} | notes).items():
        trial._trial.set_user_attr(name, value)


def test_a_trial_of_a_dead_worker_is_taken_up_with_its_numbers(tmp_path):
    study, other = Study(tmp_path), Study(tmp_path)
    study.add(["a"])
    trial = study.take()
    values = trial.suggest(RANGES)
    assert other.take() is None  # it is being worked on
    dies(trial)
    again = other.take()
    assert (again.name, again.suggest(RANGES)) == ("a", values)
    study.done(trial, (1.0, 2.0))  # the dead one wakes up, and changes nothing
    assert study.front() == set()
    other.done(again, (1.0, 2.0))
    assert other.front() == {"a"}


def test_a_trial_that_kills_its_workers_is_left_alone_until_somebody_asks(tmp_path):
    study = Study(tmp_path)
    study.add(["a"])
    for _ in range(3):
        dies(study.take())
    assert study.take() is None
    study.add(["a"])
    assert study.take().name == "a"


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "random"])
def test_what_is_chosen_depends_on_the_seed_and_the_number_alone(tmp_path, sampler):
    names, found = ["a", "b", "c"], []
    for folder, seed in (("one", 0), ("two", 0), ("three", 1)):
        studies = [Study(tmp_path / folder) for _ in range(2)]
        studies[0].add(names)
        for study in studies:
            study.guide_(sampler, seed, None)
        # One worker takes all of them, or two of them take turns.
        workers = [studies[0]] * 3 if folder == "one" else [*studies, studies[0]]
        found.append([worker.take().suggest(RANGES) for worker in workers])
    assert found[0] == found[1]
    assert found[0] != found[2]
    assert len({one["lr"] for one in found[0]}) == 3
    assert all(1e-4 <= one["lr"] <= 1e-1 for one in found[0])


def test_a_search_learns_from_what_it_found(tmp_path):
    study = Study(tmp_path, goals=1)
    study.guide_("tpe", 0, None)
    study.add([str(number) for number in range(40)])
    tried = []
    while (trial := study.take()) is not None:
        tried.append(trial.suggest({"lr": Range(1e-4, 1.0)})["lr"])
        study.done(trial, [abs(math.log10(tried[-1]) + 1.5)])
    near = [abs(math.log10(lr) + 1.5) < 0.5 for lr in tried]
    assert sum(near[20:]) > sum(near[:20])


def test_hopeless_trials_are_seen_and_remembered(tmp_path):
    study = Study(tmp_path, goals=1)
    study.guide_("random", 0, 1)
    study.add(["a", "b", "c", "d", "e", "bad"])
    for _ in range(5):
        trial = study.take()
        assert not any(trial.report(step, 1.0) for step in (1, 2, 3))
        study.done(trial, [1.0])
    trial = study.take()
    assert [trial.report(step, 9.0) for step in (1, 2)] == [False, True]
    study.stopped(trial)
    assert study.hopeless() == {"bad"}
    study.add(["bad"])
    assert study.take() is None


def test_a_study_keeps_its_number_of_goals(tmp_path):
    Study(tmp_path)
    with pytest.raises(ArgumentError, match=r"begun with 2 goals, not 1.*\n.*--out"):
        Study(tmp_path, goals=1)


def test_the_front_is_what_nothing_beats(tmp_path):
    study = Study(tmp_path)
    found = {"a": (1.0, 9.0), "b": (2.0, 3.0), "c": (2.5, 4.0), "d": (5.0, 1.0)}
    study.add(list(found))
    for _ in found:
        trial = study.take()
        study.done(trial, found[trial.name])
    assert study.front() == {"a", "b", "d"}


@pytest.mark.parametrize("text", ["{", "[]\n", '{"op_code": 0}\n', "\x00"])
def test_a_damaged_journal_is_named(tmp_path, text):
    (tmp_path / "study.journal").write_text(f"{text}\n")
    with pytest.raises(ArgumentError, match=r"study\.journal` is damaged"):
        Study(tmp_path)

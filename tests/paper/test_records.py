import json
import shutil
from dataclasses import replace

import pytest
import torch

from diffprune.errors import ArgumentError, StorageError
from diffprune.lab import read_run
from diffprune.lab.cli.run_jobs import Job, run_job
from paper import frontier, records
from paper.comparison import run as comparison
from paper.comparison.systems import METHODS
from paper.experiments import EXPERIMENTS
from paper.records import (
    copy_record,
    has_finished,
    read_records,
    read_results,
    train_and_keep,
    write_figures,
)


def test_a_record_is_the_run_without_what_is_heavy(run_folder, tmp_path):
    copy_record(run_folder, tmp_path / "toy", "abc")
    whole, (kept,) = read_run(run_folder), read_records(tmp_path, "make it")
    assert kept.outcome == whole.outcome
    assert kept.removals == whole.removals
    assert kept.epochs == tuple(replace(e, prob_open={}) for e in whole.epochs)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_record_names_the_commit_at_which_its_run_began(
    toy, recipe, tmp_path, monkeypatch
):
    """Other work may be committed while a run goes on, or before it is continued."""
    present = iter(["first", "while it ran", "later"])
    monkeypatch.setattr(records, "commit", lambda: next(present))
    job = Job(toy, replace(recipe, epochs=1), tmp_path / "run")

    def stops(job):
        run_job(job)
        records.commit()
        raise KeyboardInterrupt

    monkeypatch.setattr(records, "run_job", stops)
    with pytest.raises(KeyboardInterrupt):
        train_and_keep(job, tmp_path / "record")
    train_and_keep(job, tmp_path / "record")
    assert commit_of(tmp_path / "record") == "first"


def test_nothing_stays_of_the_record_of_another_run(toy, recipe, tmp_path, monkeypatch):
    record = tmp_path / "record"
    for said in ("first", "second"):
        monkeypatch.setattr(records, "commit", lambda said=said: said)
        job = Job(toy, replace(recipe, epochs=1), tmp_path / said)
        train_and_keep(job, record)
        (record / f"{said}.txt").touch()
        (record / "summary.json").unlink()  # as of a run that was not finished
    assert commit_of(record) == "second"
    assert [path.name for path in record.glob("*.txt")] == ["second.txt"]


def test_a_finished_record_stays_whatever_the_same_run_comes_to_later(
    toy, recipe, tmp_path
):
    """Another machine rounds differently, and run folders do not last."""
    record, how = tmp_path / "record", replace(recipe, epochs=1)
    train_and_keep(Job(toy, how, tmp_path / "first"), record)
    before = {path: path.read_bytes() for path in record.iterdir()}

    def other(recipe):
        torch.rand(1)
        return toy(recipe)

    train_and_keep(Job(other, how, tmp_path / "second"), record)
    first, second = (read_run(tmp_path / name) for name in ("first", "second"))
    assert first.epochs[0].loss != second.epochs[0].loss
    assert {path: path.read_bytes() for path in record.iterdir()} == before


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_run_folder_of_another_recipe_is_no_record_of_this_one(
    run_folder, toy, recipe, tmp_path, is_finished
):
    """As after `paper train NAME --epochs 1`, or one that was interrupted."""
    folder, record = tmp_path / "run", tmp_path / "record"
    shutil.copytree(run_folder, folder)
    if not is_finished:
        (folder / "summary.json").unlink()
    with pytest.raises(ArgumentError, match="its `epochs` is 1, and 3 is asked for"):
        train_and_keep(Job(toy, recipe, folder), record)
    assert not record.exists()


def test_a_record_is_replaced_whole_or_not_at_all(run_folder, tmp_path, monkeypatch):
    copy_record(run_folder, tmp_path / "toy", "abc")
    before = {path: path.read_bytes() for path in (tmp_path / "toy").iterdir()}
    longer, write = tmp_path / "longer", records.write_files
    shutil.copytree(run_folder, longer)
    lines = (longer / "metrics.jsonl").read_text()
    (longer / "metrics.jsonl").write_text(lines + lines)

    def stops(contents):
        *_, last = contents
        monkeypatch.setattr(type(last), "replace", stop)
        write(contents)

    def stop(*_):
        raise OSError("no space left")

    monkeypatch.setattr(records, "write_files", stops)
    with pytest.raises(StorageError, match="no space left"):
        copy_record(longer, tmp_path / "toy", "abc")
    after = {path: path.read_bytes() for path in (tmp_path / "toy").iterdir()}
    assert after == before


def test_a_place_that_takes_no_record_is_refused_before_training(toy, recipe, tmp_path):
    (tmp_path / "file").touch()
    job = Job(toy, recipe, tmp_path / "run")
    with pytest.raises(StorageError, match="name a place that can be written"):
        train_and_keep(job, tmp_path / "file/record")
    assert not job.folder.exists()


def test_only_a_finished_run_of_the_same_recipe_is_on_record(run_folder, tmp_path):
    done = read_run(run_folder).recipe
    assert not has_finished(done, tmp_path / "toy")
    copy_record(run_folder, tmp_path / "toy", "abc")
    assert has_finished(done, tmp_path / "toy")
    with pytest.raises(ArgumentError, match="its `epochs` is 1, and 7 is asked for"):
        has_finished(replace(done, epochs=7), tmp_path / "toy")
    (tmp_path / "toy/summary.json").unlink()
    assert not has_finished(done, tmp_path / "toy")


def test_what_gates_do_by_default_need_not_be_on_record(run_folder, tmp_path):
    done = read_run(run_folder).recipe
    copy_record(run_folder, tmp_path / "toy", "abc")
    same = replace(done, gate={**done.gate, "sigma": 1.0, "dropout": None})
    assert has_finished(same, tmp_path / "toy")
    with pytest.raises(ArgumentError, match="its `gate` is"):
        has_finished(replace(done, gate={"sigma": 0.5}), tmp_path / "toy")


def test_nothing_that_is_on_record_would_be_trained_again():
    """A record whose recipe has changed since would be lost to a run of a table."""
    tables = {
        records.RESULTS / name / make(seed).folder_name: make(seed)
        for name, chosen in EXPERIMENTS.items()
        for _, make in chosen.runs
        for seed in range(3)
    }
    systems = {
        comparison.RECORDS / comparison.folder_name(own): own
        for method in METHODS.values()
        for epochs in (11, 20, 100, 200)
        for own in (method.asked(0, epochs),)
    }
    aims = [
        (aim, seed, frontier.recipe(aim, seed))
        for aim in frontier.AIMS
        for seed in range(3)
    ]
    small = {
        frontier.RECORDS / f"{aim}-seed{seed}{end}": recipe
        for aim, seed, closing in aims
        for end, recipe in (("", closing), ("-again", frontier.again_recipe(closing)))
    }
    kept = {
        path: has_finished(recipe, path)
        for path, recipe in {**tables, **systems, **small}.items()
        if path.exists()
    }
    assert len(kept) > 50
    assert all(kept.values())


def commit_of(record):
    return json.loads((record / "environment.json").read_text())["commit"]


def test_without_records_the_message_says_how_to_make_some(tmp_path):
    with pytest.raises(ArgumentError, match="holds no records; `make it` makes some"):
        read_records(tmp_path / "wrn", "make it")


def test_figures_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "deep" / "figures.json"
    write_figures(path, "make it", results=[{"a": 1}, {"a": 2.5}])
    assert read_results(path, "make it", dict) == [{"a": 1}, {"a": 2.5}]
    found = json.loads(path.read_text())
    assert found["command"] == "make it"
    assert {"date", "versions", "commit", "machine"} <= set(found)
    assert [p.name for p in path.parent.iterdir()] == ["figures.json"]


def test_a_missing_record_names_the_command_that_makes_it(tmp_path):
    with pytest.raises(ArgumentError, match="`make it` makes one"):
        read_results(tmp_path / "none.json", "make it", dict)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"results": [', "is damaged, or of another version: JSONDecodeError"),
        (b"\xff", "is damaged"),
        (b"[]", "is damaged"),
        (b"{}", "KeyError: 'results'"),
        (b'{"results": [{"b": 1}]}', "unexpected keyword argument 'b'"),
        (b'{"results": []}', "holds no results"),
    ],
)
def test_a_damaged_record_is_said_to_be_one(tmp_path, content, message):
    (tmp_path / "figures.json").write_bytes(content)
    with pytest.raises(ArgumentError, match=message) as raised:
        read_results(tmp_path / "figures.json", "make it", lambda *, a: a)
    assert "`make it` makes" in str(raised.value)


@pytest.mark.parametrize(("changed", "end"), [("", ""), ("paper/x.py", "-dirty")])
def test_a_commit_is_dirty_if_a_source_file_has_changed(monkeypatch, changed, end):
    said = {"rev-parse": "abc", "diff": changed}
    monkeypatch.setattr(records, "_git", lambda command, *_: said[command])
    assert records.commit() == f"abc{end}"


def test_every_record_of_the_paper_can_be_read():
    for name in ("lenet5", "wrn", "wrn-10-1", "frontier", "table1"):
        assert read_records(records.RESULTS / name, "")
    for path in records.RESULTS.rglob("*.json"):
        assert json.loads(path.read_text(encoding="utf-8"))

import json
import shutil
from dataclasses import replace

import pytest
import torch
from rich.console import Console

import diffprune as dp
from diffprune.errors import ArgumentError
from diffprune.lab import read_run
from diffprune.lab.image_batches import Examples, Split
from paper import frontier, teaching
from paper.models.lenet5 import LeNet5, folded_
from paper.tables.frontier_table import frontier_table, points


@pytest.fixture
def short(monkeypatch, tmp_path):
    """A few images, a few epochs, and folders of their own."""

    def some(count):
        labels = torch.arange(count) % 10
        images = torch.rand(count, 1, 28, 28) + labels.view(-1, 1, 1, 1) / 10
        return Examples(images, labels)

    data = Split(some(64), None, some(20))
    for module in (frontier, teaching):
        monkeypatch.setattr(module, "load_mnist", lambda: data)
    monkeypatch.setattr(frontier, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(frontier, "TEACHERS", tmp_path / "runs")
    monkeypatch.setattr(frontier, "RECORDS", tmp_path / "records")
    for name, epochs in {"teacher_recipe": 1, "recipe": 6, "again_recipe": 2}.items():
        make = getattr(frontier, name)

        def made(*args, make=make, epochs=epochs, **options):
            return replace(make(*args, **options), epochs=epochs)

        monkeypatch.setattr(frontier, name, made)
    return tmp_path


def test_what_is_left_is_trained_with_norms_and_is_plain_in_the_end(short, capsys):
    frontier.train("normed", 3)
    assert "norms folded away" in capsys.readouterr().err
    closed = read_run(short / "records" / "normed-seed3").outcome
    assert closed.parameters <= frontier.AIMS["normed"].params
    record = short / "records" / "normed-seed3-again"
    run, found = read_run(record), json.loads((record / "folded.json").read_text())
    assert found["parameters"] == closed.parameters < run.outcome.parameters
    assert found["test_error"] == pytest.approx(run.epochs[-1].test_error)
    assert "BatchNorm" not in found["layers"]
    (point,) = [
        p
        for p in points([run, read_run(record.parent / "normed-seed3")])
        if "again" in p.name
    ]
    assert point.weights < closed.parameters


def test_a_teacher_with_norms_drops_units_while_it_learns(short):
    frontier.train("normed", 0)
    folder = short / "runs" / "frontier-teacher-normed-seed0"
    model = teaching.teacher(read_run(folder).recipe).model
    images = torch.rand(4, 1, 28, 28)
    assert not torch.equal(model(images), model(images))
    loaded = dp.load_pruned(model, folder).eval()
    before = loaded(images)
    torch.testing.assert_close(folded_(loaded)(images), before)
    assert {n for n, _ in loaded.named_parameters()} == {
        n for n, _ in LeNet5().named_parameters()
    }


@pytest.mark.parametrize(
    ("aim", "teacher"),
    [("small", "frontier-teacher"), ("plain", "frontier-teacher-normed")],
)
def test_other_aims_have_no_norms(short, aim, teacher):
    frontier.train(aim, 0, untaught=True)
    records = sorted(path.name for path in (short / "records").iterdir())
    assert records == [f"{aim}-seed0", f"{aim}-seed0-again", f"{aim}-seed0-untaught"]
    assert (short / "runs" / f"{teacher}-seed0" / "summary.json").exists()
    assert len([*(short / "runs").glob("*teacher*")]) == 1
    assert not [*(short / "records").rglob("folded.json")]


def test_weights_leave_one_by_one_where_that_is_the_aim(short):
    frontier.train("sparse", 0)
    closed, again = (
        read_run(short / "records" / name)
        for name in ("sparse-seed0", "sparse-seed0-again")
    )
    found = {p.name: p for p in points([closed, again]) if p.is_ours}
    first, last = found["diffprune, sparse 0"], found["diffprune, sparse again 0"]
    assert first.architecture == last.architecture == "3-18-288-64"
    assert (first.weights, last.weights) == (20_497, 2_700)
    assert first.macs == last.macs < 150_000
    assert last.tensors == first.weights
    terminal = Console(width=120)
    with terminal.capture() as shown:
        terminal.print(frontier_table([last]))
    assert "2,700 of 20,497" in shown.get()
    small = dp.load_pruned(LeNet5(), short / "runs/sparse-seed0-again")
    weights = [p for p in small.parameters() if p.ndim > 1]
    assert sum(int(p.count_nonzero()) for p in weights) == 2_700


def test_choices_are_made_without_the_images_of_the_test(short, monkeypatch):
    held_out = frontier.load_mnist()
    data = replace(held_out, validation=held_out.test)
    for module in (frontier, teaching):
        monkeypatch.setattr(module, "load_mnist", lambda **_: data)
    frontier.validate("sparse")
    names = sorted(path.name for path in (short / "runs/validated").iterdir())
    assert names == [
        "frontier-teacher-normed-seed0",
        "sparse-seed0",
        "sparse-seed0-again",
    ]
    assert (
        read_run(short / "runs/validated/sparse-seed0-again")
        .epochs[-1]
        .validation_error
    )
    assert not (short / "records").exists()


def test_what_is_on_record_is_not_trained_again(short, capsys):
    frontier.train("plain", 0)
    shutil.rmtree(short / "runs")
    capsys.readouterr()
    frontier.train("plain", 0)
    assert not (short / "runs").exists()
    before = {path: path.read_bytes() for path in (short / "records").glob("*/*")}
    frontier.train("plain", 0, untaught=True)
    said = capsys.readouterr().err
    assert "frontier-plain-untaught 0 2" in said
    assert "again" not in said
    assert {path: path.read_bytes() for path in before} == before


def test_nothing_continues_from_another_network_than_the_one_on_record(short):
    frontier.train("plain", 0)
    shutil.rmtree(short / "runs")
    summary = short / "records/plain-seed0/summary.json"
    said = json.loads(summary.read_text())
    first = next(iter(said["effective"]))
    said["effective"][first] += 1
    summary.write_text(json.dumps(said))
    with pytest.raises(ArgumentError, match="another network than its record"):
        frontier.train("plain", 0, untaught=True)
    assert not (short / "records/plain-seed0-untaught").exists()


def test_what_continues_from_nothing_on_record_is_no_point(short):
    frontier.train("plain", 0)
    runs = [read_run(path) for path in sorted((short / "records").iterdir())]
    assert len(points(runs)) == len(points([])) + 2
    with pytest.raises(ArgumentError, match="bring back the record `plain-seed0`"):
        points(runs[1:])
    other = replace(runs[0], recipe=replace(runs[0].recipe, name="lenet5-sigmoid"))
    assert points([other]) == points([])


def test_recipes_of_aims_that_are_on_record_stay_as_they_were():
    small, normed = frontier.recipe("small"), frontier.recipe("normed")
    assert (small.epochs, normed.epochs) == (60, 20)
    again = {aim: frontier.again_recipe(frontier.recipe(aim)) for aim in frontier.AIMS}
    numbers = {aim: (one.epochs, one.batch_size) for aim, one in again.items()}
    assert numbers == {
        "small": (60, 32),
        "medium": (60, 32),
        "normed": (80, 64),
        "plain": (80, 32),
        "sparse": (80, 32),
    }

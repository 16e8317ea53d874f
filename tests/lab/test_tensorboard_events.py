import sys

import pytest

from diffprune.errors import MissingPackageError, StorageError
from diffprune.lab import read_run, train
from diffprune.lab.tensorboard_events import scalars, tensorboard

events = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator",
    reason="tensorboard reads what was written for it",
)


def read(folder):
    sizes = {events.SCALARS: 0, events.HISTOGRAMS: 0}
    found = events.EventAccumulator(str(folder), size_guidance=sizes)
    return found.Reload()


def test_events_say_what_the_records_say(toy, recipe, tmp_path):
    with tensorboard(tmp_path / "events") as write:
        train(toy, recipe, out=tmp_path / "run", on_epoch=write)
    epochs, found = read_run(tmp_path / "run").epochs, read(tmp_path / "events")
    assert "error/validation" in found.Tags()["scalars"]
    for name, _ in scalars(epochs[0]):
        written = [(event.step, event.value) for event in found.Scalars(name)]
        recorded = [(epoch.number, dict(scalars(epoch))[name]) for epoch in epochs]
        assert written == [(step, pytest.approx(value)) for step, value in recorded]
    for gate in epochs[0].prob_open:
        histograms = found.Histograms(f"open/{gate}")
        units = [event.histogram_value.num for event in histograms]
        assert units == [len(epoch.prob_open[gate]) for epoch in epochs]


def test_repeated_epochs_replace_the_earlier_ones(toy, recipe, tmp_path):
    train(toy, recipe, out=tmp_path / "run")
    epochs = read_run(tmp_path / "run").epochs
    for part in (epochs[:2], epochs[1:]):
        with tensorboard(tmp_path / "events") as write:
            for epoch in part:
                write(epoch)
    found = read(tmp_path / "events")
    assert [event.step for event in found.Scalars("loss")] == [1, 2, 3]


def test_nothing_is_written_before_an_epoch(tmp_path):
    with tensorboard(tmp_path / "events"):
        pass
    assert not list((tmp_path / "events").iterdir())


def test_a_folder_that_cannot_be_is_refused_before_training(tmp_path):
    (tmp_path / "file").touch()
    with (
        pytest.raises(StorageError, match="file"),
        tensorboard(tmp_path / "file" / "events"),
    ):
        pass


def test_without_tensorboard_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    wanted = r"diffprune\[tensorboard\]"
    with pytest.raises(MissingPackageError, match=wanted), tensorboard(tmp_path):
        pass

import json
import re
from dataclasses import replace

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

from diffprune import load_pruned
from diffprune.errors import ArgumentError, MissingPackageError
from diffprune.lab import demo as demos
from diffprune.lab.demo import deliver, recipes, train_both
from diffprune.lab.digits import LeNet5, digits_recipe, load_digits
from diffprune.lab.image_batches import Split
from diffprune.lab.runs.records import read_run

SILENT = {"dense": lambda _: None, "pruned": lambda _: None}


@pytest.fixture(scope="module", autouse=True)
def digits():
    """Few digits and small batches, for speed and for many steps; no report."""
    everything = load_digits()
    few = Split(
        everything.train.take(torch.arange(80)),
        everything.validation.take(torch.arange(50)),
        everything.test.take(torch.arange(50)),
    )
    quick = replace(digits_recipe(), batch_size=4)

    def write_report(runs, path):
        path.write_text(f"{len(runs)} runs")
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("diffprune.lab.digits.load_digits", lambda: few)
        patch.setattr(demos, "digits_recipe", lambda seed: replace(quick, seed=seed))
        patch.setattr(demos, "write_report", write_report)
        yield few


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short demo: its directory, what it left and the news it sent."""
    pytest.importorskip("onnxruntime")
    out, news = tmp_path_factory.mktemp("demo"), []
    on_epoch = {name: lambda e, n=name: news.append((n, e)) for name in SILENT}
    train_both(out, seed=3, epochs=2, on_epoch=on_epoch)
    return out, deliver(out, seconds=lambda: 42.0), news


def losses(out):
    return [e.loss for name in SILENT for e in read_run(out / name).epochs]


@pytest.mark.parametrize("threads", [1, 2])
def test_equal_seeds_give_equal_files_on_any_number_of_threads(run, tmp_path, threads):
    out, _, _ = run
    before = torch.get_num_threads()
    torch.manual_seed(99)  # whatever happened before must not matter
    torch.set_num_threads(threads)
    try:
        train_both(tmp_path, seed=3, epochs=2, on_epoch=SILENT)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert losses(tmp_path) == losses(out)
    expected, actual = (
        load_file(path / "pruned" / "model.safetensors") for path in (out, tmp_path)
    )
    assert expected.keys() == actual.keys()
    assert all(torch.equal(expected[name], actual[name]) for name in expected)


@pytest.mark.parametrize("name", ["dense", "pruned"])
def test_what_no_demo_has_left_is_not_replaced(tmp_path, write_run, name):
    kept = write_run(tmp_path / name, task="../mine.py:task")
    with pytest.raises(ArgumentError, match=rf"{name}` would be replaced.*\nName ano"):
        train_both(tmp_path, seed=4, epochs=1, on_epoch=SILENT)
    assert (kept / "summary.json").exists()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_another_seed_replaces_an_earlier_demo(tmp_path):
    train_both(tmp_path, seed=4, epochs=1, on_epoch=SILENT)
    first = losses(tmp_path)
    train_both(tmp_path, seed=5, epochs=1, on_epoch=SILENT)
    assert len(first) == len(losses(tmp_path)) == 2
    assert first[0] != losses(tmp_path)[0]


def test_news_arrive_in_order(run):
    _, _, news = run
    expected = [("dense", 1), ("dense", 2), ("pruned", 1), ("pruned", 2)]
    assert [(name, epoch.number) for name, epoch in news] == expected


def test_both_networks_are_trained_alike():
    both = recipes(seed=1, epochs=2)
    alike = replace(both["dense"], name="pruned", budget=both["pruned"].budget)
    assert alike == both["pruned"]


def test_the_network_is_written_in_every_form(run):
    out, demo, _ = run
    names = ["small", "small.onnx", "report.html", "summary.json"]
    assert demo.files == tuple(out / name for name in names)
    assert all(path.exists() for path in demo.files)
    assert demo.missing == ()
    units = demo.pruned.outcome.effective
    assert load_pruned(LeNet5(), out / "small").conv1.out_channels == units["conv1"]


def test_the_dense_network_stays_dense_and_the_other_shrinks(run):
    out, demo, _ = run
    assert demo.dense.outcome.macs == 2_293_000
    assert demo.dense.outcome.parameters == 431_080
    assert demo.pruned.outcome.macs < 2_000_000
    assert demo.pruned.worst_certificate().max_relative < 1e-5
    written = json.loads((out / "summary.json").read_text())
    assert written == json.loads(json.dumps(demo.to_dict()))
    assert written["pruned"]["removals"] > 0


def test_what_is_not_installed_is_left_out_and_said(run, monkeypatch):
    def refuse(*_):
        raise MissingPackageError("install onnx")

    out, _, _ = run
    monkeypatch.setattr(demos, "to_onnx", refuse)
    demo = deliver(out, seconds=lambda: 1.0)
    names = ["small", "report.html", "summary.json"]
    assert [path.name for path in demo.files] == names
    assert demo.missing == ("install onnx",)


def shown(demo, width):
    console = Console(record=True, width=width)
    console.print(*demo.view(), sep="\n")
    return console.export_text()


@pytest.mark.parametrize("width", [80, 120])
def test_dense_and_pruned_stand_side_by_side(run, width):
    _, demo, _ = run
    text = shown(demo, width)
    small = demo.pruned.outcome
    assert "2,293,000" in text
    assert f"{small.macs:,} ({small.macs / 2_293_000:.1%})" in text
    assert f"{small.test_error:.2f} %" in text
    assert f"{len(demo.pruned.removals)} removals, each verified: outputs" in text
    assert "42 seconds. Written to" in text
    assert "the numbers above" in text


def test_without_removals_there_is_advice_instead_of_a_proof(run):
    _, demo, _ = run
    missing = ("to write ONNX, onnx must be installed.\nType `pip install ...`.",)
    text = shown(replace(demo, pruned=demo.dense, missing=missing), 200)
    assert "train for longer" in text
    assert re.search("left out +to write ONNX, onnx must be installed. Type", text)

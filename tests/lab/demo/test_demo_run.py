import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from diffprune.lab.demo.demo_deliver import Delivery
from diffprune.lab.demo.demo_run import recipes, sum_up, train_both
from diffprune.lab.digits import load_digits
from diffprune.lab.image_batches import Split
from paper import lenet5_tasks as builtin
from paper.models.counting import Widths

NOTHING = Delivery((), ())
SILENT = {"dense": lambda _: None, "pruned": lambda _: None}


@pytest.fixture(scope="module", autouse=True)
def digits():
    """Few digits and small batches, for speed and for many steps."""
    everything = load_digits()
    few = Split(
        everything.train.take(torch.arange(80)),
        everything.validation.take(torch.arange(50)),
        everything.test.take(torch.arange(50)),
    )
    quick = replace(builtin.digits_sigmoid(), batch_size=4, remove_every=10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paper.lenet5_tasks.load_digits", lambda: few)
        patch.setattr("diffprune.lab.demo.demo_run.deliver", lambda *_, **__: NOTHING)
        patch.setattr(
            "diffprune.lab.demo.demo_run.digits_sigmoid",
            lambda seed: replace(quick, seed=seed),
        )
        yield few


def run_demo(out, *, seed, epochs, on_epoch=SILENT):
    train_both(out, seed=seed, epochs=epochs, on_epoch=on_epoch)
    return sum_up(out, start=0.0)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run: its directory, its summary and the news it sent."""
    out, news = tmp_path_factory.mktemp("demo"), []
    on_epoch = {name: lambda e, n=name: news.append((n, e)) for name in SILENT}
    return out, run_demo(out, seed=3, epochs=2, on_epoch=on_epoch), news


def metrics(out):
    lines = (out / "metrics.jsonl").read_text().splitlines()
    clocks = dict.fromkeys(("seconds", "processor_seconds"))
    return [{**json.loads(line), **clocks} for line in lines]


@pytest.mark.parametrize("threads", [1, 2])
def test_equal_seeds_give_equal_files_on_any_number_of_threads(run, tmp_path, threads):
    out, _, _ = run
    before = torch.get_num_threads()
    torch.manual_seed(99)  # whatever happened before must not matter
    torch.set_num_threads(threads)
    try:
        run_demo(tmp_path, seed=3, epochs=2, on_epoch=SILENT)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert metrics(tmp_path) == metrics(out)
    expected, actual = (
        load_file(path / "pruned" / "model.safetensors") for path in (out, tmp_path)
    )
    assert expected.keys() == actual.keys()
    assert all(torch.equal(expected[name], actual[name]) for name in expected)


def test_another_seed_replaces_an_earlier_demo(tmp_path):
    run_demo(tmp_path, seed=4, epochs=1, on_epoch=SILENT)
    first = metrics(tmp_path)
    run_demo(tmp_path, seed=5, epochs=1, on_epoch=SILENT)
    second = metrics(tmp_path)
    assert len(first) == len(second) == 2
    assert first[0]["loss"] != second[0]["loss"]


def test_news_arrive_in_order_and_equal_the_metrics(run):
    out, _, news = run
    expected = [("dense", 1), ("dense", 2), ("pruned", 1), ("pruned", 2)]
    assert [(name, epoch.number) for name, epoch in news] == expected
    assert [(r["network"], r["number"]) for r in metrics(out)] == expected
    assert [r["loss"] for r in metrics(out)] == [epoch.loss for _, epoch in news]


def test_both_networks_are_trained_alike():
    both = recipes(seed=1, epochs=2)
    alike = replace(both["dense"], name="pruned", strength=both["pruned"].strength)
    assert alike == both["pruned"]


def test_the_saved_weights_are_those_of_a_small_network(run):
    out, summary, _ = run
    weights = load_file(out / "pruned" / "model.safetensors")
    small = summary.to_dict()["pruned"]
    widths = Widths(*small["effective_widths"])
    assert weights["conv1.weight"].shape == (widths.conv1, 1, 5, 5)
    assert weights["conv2.weight"].shape == (widths.conv2, widths.conv1, 5, 5)
    assert weights["fc1.weight"].shape == (widths.fc1, widths.flat)
    assert not [name for name in weights if "logits" in name]


def test_the_costs_are_those_that_follow_from_the_widths(run):
    _, summary, _ = run
    for network in (summary.to_dict()["dense"], summary.to_dict()["pruned"]):
        widths = Widths(*network["effective_widths"])
        assert network["parameters"] == widths.parameters
        assert network["macs"] == widths.macs


def test_the_dense_network_stays_dense_and_the_other_shrinks(run):
    _, summary, _ = run
    assert summary.to_dict()["dense"]["effective_widths"] == (20, 50, 800, 500)
    assert summary.to_dict()["pruned"]["macs"] < 1_500_000
    assert summary.certificate().max_relative < 1e-5
    assert json.loads((run[0] / "summary.json").read_text())["removals"] > 0

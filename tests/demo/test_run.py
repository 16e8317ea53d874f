import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from diffprune.demo import training
from diffprune.demo.run import run_demo
from diffprune.demo.training import Recipe, error_rate
from diffprune.gates import Gate
from diffprune.recipes.digits import Digits, load_digits
from diffprune.recipes.models import LeNet5

QUICK = Recipe(epochs=2, batch_size=10)


@pytest.fixture(scope="module", autouse=True)
def digits():
    """Few digits, for speed."""
    everything = load_digits()
    few = Digits(
        everything.train.take(torch.arange(100)), everything.validation, everything.test
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("diffprune.demo.run.load_digits", lambda: few)
        yield few


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run: its directory, its summary and the news it sent."""
    out, news = tmp_path_factory.mktemp("demo"), []
    summary = run_demo(out, seed=3, recipe=QUICK, on_epoch=lambda *n: news.append(n))
    return out, summary, news


def test_equal_seeds_give_equal_files(run, tmp_path):
    out, _, _ = run
    torch.manual_seed(99)  # whatever happened before must not matter
    run_demo(tmp_path, seed=3, recipe=QUICK, on_epoch=lambda *_: None)
    for name in ("metrics.jsonl", "pruned.safetensors"):
        assert (tmp_path / name).read_bytes() == (out / name).read_bytes()


def test_the_number_of_threads_is_left_alone_and_does_not_matter(run, tmp_path):
    out, _, _ = run
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run_demo(tmp_path, seed=3, recipe=QUICK, on_epoch=lambda *_: None)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    name = "pruned.safetensors"
    assert (tmp_path / name).read_bytes() == (out / name).read_bytes()


def test_another_seed_gives_another_run(run, tmp_path):
    out, _, _ = run
    run_demo(
        tmp_path, seed=4, recipe=replace(QUICK, epochs=1), on_epoch=lambda *_: None
    )
    first, *_ = (out / "metrics.jsonl").read_text().splitlines()
    other, *_ = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(first)["loss"] != json.loads(other)["loss"]


def test_the_global_random_state_is_left_alone(tmp_path):
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    run_demo(
        tmp_path, seed=0, recipe=replace(QUICK, epochs=1), on_epoch=lambda *_: None
    )
    assert torch.rand(3).equal(expected)


def test_news_arrive_in_order_and_equal_the_metrics(run):
    out, _, news = run
    lines = (out / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    expected = [("dense", 1), ("dense", 2), ("pruned", 1), ("pruned", 2)]
    assert [(name, epoch.number) for name, epoch in news] == expected
    assert [(r["network"], r["number"]) for r in records] == expected
    assert [r["loss"] for r in records] == [epoch.loss for _, epoch in news]


def test_the_saved_weights_are_those_that_were_tested(run, digits):
    out, summary, _ = run
    model = LeNet5(Gate)
    model.load_state_dict(load_file(out / "pruned.safetensors"))
    assert error_rate(model, digits.test) == summary.pruned.test_error
    assert training.open_units(model).raw() == summary.pruned.final.raw


def test_the_dense_network_stays_dense_and_the_other_shrinks(run):
    _, summary, _ = run
    assert summary.dense.final.raw == (20, 50, 800, 500)
    assert summary.pruned.final.effective.macs < 2_293_000

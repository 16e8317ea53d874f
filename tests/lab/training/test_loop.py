import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from math import nan

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, IterableDataset

from diffprune import Pruner
from diffprune.errors import ArgumentError, StorageError
from diffprune.lab import read_run, train


def without_time(run):
    return [replace(epoch, seconds=0, processor_seconds=0) for epoch in run.epochs]


@pytest.fixture(scope="module")
def finished(toy, recipe, tmp_path_factory):
    """A run from start to end: its folder, its model."""
    out = tmp_path_factory.mktemp("runs") / "toy"
    return out, train(toy, recipe, out=out)


def stopping(toy, after, signals=1):
    """A task whose loss interrupts the run in the given step."""
    calls = iter(range(1, 1000))

    def make(recipe):
        task = toy(recipe)

        def loss(outputs, targets):
            if next(calls) == after:
                for _ in range(signals):
                    signal.raise_signal(signal.SIGINT)
            return task.loss(outputs, targets)

        return replace(task, loss=loss)

    return make


def counting(toy, steps):
    """A task whose loss adds to a list in every step."""

    def make(recipe):
        task = toy(recipe)

        def loss(outputs, targets):
            steps.append(len(targets))
            return task.loss(outputs, targets)

        return replace(task, loss=loss)

    return make


def test_the_model_that_comes_out_is_plain_small_and_saved(finished):
    out, model = finished
    assert type(model) is nn.Sequential
    assert model[0].out_features < 16
    assert load_file(out / "model.safetensors").keys() == model.state_dict().keys()
    saved = load_file(out / "model.safetensors")
    assert all(saved[n].equal(value) for n, value in model.state_dict().items())


def test_the_outcome_is_that_of_the_saved_model(finished, toy, recipe):
    out, model = finished
    outcome = read_run(out).outcome
    task, wrong, count = toy(recipe), 0, 0
    for inputs, labels in task.test:
        wrong += int((model(inputs).argmax(1) != labels).sum())
        count += len(labels)
    width = model[0].out_features
    assert outcome.test_error == pytest.approx(100 * wrong / count)
    assert outcome.macs == 4 * width + 2 * width
    assert outcome.parameters == 5 * width + 2 * width + 2
    assert list(outcome.effective.values()) == [width]


def test_every_epoch_is_recorded(finished, recipe):
    run = read_run(finished[0])
    assert [epoch.number for epoch in run.epochs] == [1, 2, 3]
    last = run.epochs[-1]
    assert last.macs_per_step == 3 * 8 * last.macs
    assert last.lr == pytest.approx(recipe.lr * 0.25)
    assert [len(p) for p in last.prob_open.values()] == list(last.effective.values())
    assert last.raw == last.effective
    assert last.loss < run.epochs[0].loss


def test_every_removal_has_a_certificate(finished):
    removals = read_run(finished[0]).removals
    assert removals
    assert all(removal.certificate.max_relative < 1e-5 for removal in removals)
    widths = [sum(removal.units.values()) for removal in removals]
    assert widths == sorted(widths, reverse=True)


def test_equal_seeds_give_equal_runs(finished, toy, recipe, tmp_path):
    torch.manual_seed(99)  # whatever happened before must not matter
    expected = torch.rand(3)
    torch.manual_seed(99)
    train(toy, recipe, out=tmp_path / "again")
    assert torch.rand(3).equal(expected)
    first, second = read_run(finished[0]), read_run(tmp_path / "again")
    assert without_time(first) == without_time(second)


@pytest.mark.parametrize("step", [1, 5, 8, 13])
def test_an_interrupted_run_continues_to_the_same_end(
    finished, toy, recipe, tmp_path, step
):
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        train(stopping(toy, step), recipe, out=out)
    assert read_run(out).outcome is None
    left = []
    model = train(counting(toy, left), recipe, out=out)
    assert len(left) == 3 * 8 - step
    whole, resumed = read_run(finished[0]), read_run(out)
    assert without_time(resumed) == without_time(whole)
    assert resumed.removals == whole.removals
    for ours, expected in zip(
        model.parameters(), finished[1].parameters(), strict=True
    ):
        assert ours.equal(expected)


def test_a_second_signal_stops_at_once_and_the_last_epoch_is_kept(
    finished, toy, recipe, tmp_path
):
    with pytest.raises(KeyboardInterrupt):
        train(stopping(toy, 10, signals=2), recipe, out=tmp_path)
    assert len(read_run(tmp_path).epochs) == 1
    train(toy, recipe, out=tmp_path)
    assert without_time(read_run(tmp_path)) == without_time(read_run(finished[0]))


def test_without_strength_the_model_stays_as_it_is(toy, recipe, tmp_path):
    dense = replace(recipe, strength=None, epochs=2)
    with pytest.raises(KeyboardInterrupt):
        train(stopping(toy, 11), dense, out=tmp_path)
    model = train(toy, dense, out=tmp_path)
    run = read_run(tmp_path)
    assert model[0].out_features == 16
    assert (run.outcome.macs, run.outcome.raw, run.removals) == (96, {}, ())
    assert [epoch.number for epoch in run.epochs] == [1, 2]


def test_gradients_are_clipped(toy, recipe, tmp_path):
    still = replace(
        recipe, clip_norm=1e-12, epochs=1, strength=0.0, gate_lr=1.0, lr=1.0
    )

    def task(recipe):
        return replace(toy(recipe), optimizer=partial(SGD, lr=1.0))

    torch.manual_seed(recipe.seed)
    initial = task(still).model.state_dict()
    model = train(task, still, out=tmp_path)
    assert model[0].weight.allclose(initial["0.weight"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lr": 0.5}, r"holds a run with lr 0\.01, not 0\.5\.\nName another"),
        ({}, "holds this very run, finished"),
    ],
)
def test_another_or_a_finished_run_is_not_overwritten(
    finished, toy, recipe, changes, message
):
    with pytest.raises(ArgumentError, match=message):
        train(toy, replace(recipe, **changes), out=finished[0])


def test_a_folder_that_cannot_be_is_named(toy, recipe, tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(StorageError, match=r"cannot write into .*taken/run"):
        train(toy, recipe, out=tmp_path / "taken" / "run")


@pytest.mark.parametrize("amp", [False, True])
def test_forward_passes_run_in_half_precision_where_asked(toy, recipe, tmp_path, amp):
    seen = []

    def make(recipe):
        task = toy(recipe)

        def loss(outputs, targets):
            seen.append(outputs.dtype)
            return task.loss(outputs, targets)

        return replace(task, loss=loss)

    model = train(make, replace(recipe, amp=amp), out=tmp_path)
    assert set(seen) == {torch.bfloat16 if amp else torch.float32}
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model[0].out_features < 16
    assert read_run(tmp_path).outcome.test_error < 30


def test_without_live_removal_closed_units_stay_until_the_end(toy, recipe, tmp_path):
    model = train(toy, replace(recipe, pruner={"remove_every": 10**9}), out=tmp_path)
    run = read_run(tmp_path)
    assert {epoch.macs for epoch in run.epochs} == {4 * 16 + 16 * 2}
    assert sum(run.epochs[-1].raw.values()) == model[0].out_features < 16
    assert len(run.removals) == 1


def test_live_removal_changes_the_time_and_not_the_result(
    finished, toy, recipe, tmp_path
):
    """These gates have no noise, so the two runs agree in every epoch."""
    train(toy, replace(recipe, pruner={"remove_every": 10**9}), out=tmp_path)
    kept, removed = read_run(tmp_path), read_run(finished[0])
    for a, b in zip(kept.epochs, removed.epochs, strict=True):
        assert (a.raw, a.test_error) == (b.raw, b.test_error)
        assert a.loss == pytest.approx(b.loss, rel=1e-5)
    assert kept.outcome.macs == removed.outcome.macs


def test_a_budget_is_met_by_the_end(toy, recipe, tmp_path):
    asked = replace(recipe, strength=None, pruner={}, budget={"macs": 0.5})
    small = train(toy, asked, out=tmp_path / "run")
    assert small[0].out_features == 8  # of 16
    assert read_run(tmp_path / "run").recipe == asked


def test_layers_that_the_task_froze_stay_in_eval_mode(toy, recipe, tmp_path):
    seen = []

    def make(recipe):
        task = toy(recipe)
        model = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.1), task.model)
        model[0].eval()
        model.register_forward_hook(note)
        return replace(task, model=model)

    def note(model, *_):
        if not torch.compiler.is_exporting():  # both modes are traced
            seen.append((model.training, model[0].training))

    small = train(make, replace(recipe.as_dense(), epochs=1), out=tmp_path)
    assert set(seen) == {(True, False), (False, False)}
    assert (small.training, small[0].training) == (True, False)


def test_a_model_in_eval_mode_is_trained(toy, recipe, tmp_path):
    def make(recipe):
        task = toy(recipe)
        return replace(task, model=task.model.eval())

    assert train(make, replace(recipe.as_dense(), epochs=1), out=tmp_path).training


def test_a_loss_that_is_no_number_stops_the_run(toy, recipe, tmp_path):
    calls = iter(range(1000))

    def make(recipe):
        task = toy(recipe)

        def loss(outputs, targets):
            return task.loss(outputs, targets) * (nan if next(calls) == 9 else 1.0)

        return replace(task, loss=loss)

    match = r"became nan in epoch 2, batch 2\.\nThe last .*tensors`, .*end of epoch 1"
    with pytest.raises(ArgumentError, match=match):
        train(make, replace(recipe.as_dense()), out=tmp_path)
    assert len(read_run(tmp_path).epochs) == 1


ONE = [(torch.rand(1, 4), torch.tensor([1]))]
"""Too few examples for a batch norm."""
NORMED = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))


class Endless(IterableDataset):
    """Data that does not say how much there is."""

    def __iter__(self):
        return iter([])


class Named(nn.Module):
    """A network that returns its scores by name."""

    def __init__(self, inside):
        super().__init__()
        self.inside = inside

    def forward(self, x):
        return {"scores": self.inside(x)}


def test_a_model_may_return_more_than_a_tensor(toy, recipe, tmp_path):
    def make(recipe):
        task = toy(recipe)
        return replace(
            task,
            model=Named(task.model),
            loss=lambda outputs, labels: task.loss(outputs["scores"], labels),
            error=lambda outputs, labels: task.error(outputs["scores"], labels),
        )

    small = train(make, replace(recipe, epochs=1), out=tmp_path)
    assert list(small(torch.rand(3, 4))) == ["scores"]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"loss": nn.L1Loss()}, r"the loss of the task does not take.*\n.*loss=\.\.\."),
        (
            {"error": lambda scores, labels: scores - labels},
            r"the error of the task does not take.*\n.*error=\.\.\.",
        ),
        ({"loss": nn.CrossEntropyLoss(reduction="none")}, r"one number.*shape \(8,\)"),
        ({"loss": lambda *_: 1.0}, "must be a tensor with one number.*got 1.0"),
        ({"error": nn.CrossEntropyLoss()}, r"a number for each example, got .*\(\)"),
        (
            {"error": lambda scores, _: scores.abs().sum(1) + 7},
            r"between 0 and 1 .* from [789]\S* to .*\nReturn how wrong",
        ),
        ({"error": lambda scores, _: scores[:, 0] * nan}, "between 0 and 1 .*nan"),
        (
            {"model": NORMED, "train": ONE},
            r"fails on a batch, .*\(1, 4\): ValueError: .*\n.*`DataLoader\(\.\.\., dro",
        ),
        (
            {"optimizer": lambda groups: SGD(groups[0]["params"], lr=0.1)},
            r"one of the parameter groups .* got SGD without\.\nPass them on: `opt",
        ),
        ({"optimizer": lambda _: None}, "got NoneType without"),
        ({"validation": []}, "nothing for `validation`: there are no batches"),
        ({"validation": [{"x": 1, "y": 2}]}, r"yields \{.* as a batch.*\nYield p"),
        ({"train": DataLoader(Endless())}, r"`train` does not say how many.*\n.*len__"),
    ],
)
def test_functions_that_do_not_fit_are_named(toy, recipe, tmp_path, changes, match):
    with pytest.raises(ArgumentError, match=match):
        train(lambda recipe: replace(toy(recipe), **changes), recipe, out=tmp_path)


def test_training_in_another_thread(toy, recipe, tmp_path):
    short = replace(recipe.as_dense(), epochs=1)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(train, toy, short, out=tmp_path).result()
    assert read_run(tmp_path).outcome is not None


def test_a_task_may_bring_its_own_pruner(toy, recipe, tmp_path):
    steps = []

    class Counting(Pruner):
        def step(self, *optimizers):
            steps.append(self.steps)
            return super().step(*optimizers)

    def make(recipe):
        return replace(
            toy(recipe),
            pruner=lambda model, inputs: Counting(model, inputs, strength=0.0),
        )

    train(make, recipe, out=tmp_path)
    assert steps == list(range(8 * recipe.epochs))

"""A run that was interrupted ends like one that was not; bad files change nothing."""

import copy
import multiprocessing
import random
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn, optim

import diffprune as dp
from diffprune._io.checkpoint import VERSION, _packed, _read
from diffprune.errors import ArgumentError

STEPS = 240


class Net(nn.Module):
    """5 -> fc1 16 -> batch norm -> relu -> fc2 12 -> relu -> fc3 1."""

    def __init__(self, hidden=16):
        super().__init__()
        self.fc1 = nn.Linear(5, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.fc2 = nn.Linear(hidden, 12)
        self.fc3 = nn.Linear(12, 1)

    def forward(self, x):
        return self.fc3(self.fc2(self.norm(self.fc1(x)).relu()).relu())


class Placed(Net):
    """The same with gates of the user's own."""

    def __init__(self, hidden=16):
        super().__init__(hidden)
        self.gate1 = dp.Gate(hidden)
        self.gate2 = dp.Gate(12)

    def forward(self, x):
        x = self.gate1(self.norm(self.fc1(x)).relu())
        return self.fc3(self.gate2(self.fc2(x).relu()))


def make(kind=Net, seed=0, every=20, **options):
    torch.manual_seed(seed)
    model = kind(**options)
    pruner = dp.Pruner(model, torch.rand(4, 5), strength=0.02, remove_every=every)
    groups = pruner.parameter_groups(lr=0.01, gate_lr=0.05)
    optimizer = optim.Adam(groups)
    scheduler = optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
    return pruner, optimizer, scheduler


def train_(pruner, optimizer, scheduler, steps):
    for _ in range(steps):
        x = torch.randn(32, 5)
        optimizer.zero_grad()
        task = nn.functional.mse_loss(pruner.model(x), x[:, :1].relu())
        (task + pruner.penalty()).backward()
        optimizer.step()
        scheduler.step()
        pruner.step(optimizer)


def run(path, kind=Net, every=3):
    """Train to the end, from the last checkpoint if there is one."""
    pruner, optimizer, scheduler = make(kind)
    if path.exists():
        scheduler.load_state_dict(dp.load_checkpoint(path, pruner, optimizer))
    while pruner.steps < STEPS:
        train_(pruner, optimizer, scheduler, every)
        dp.save_checkpoint(path, pruner, optimizer, extra=scheduler.state_dict())
    return pruner


def assert_same(one, other):
    expected, actual = one.model.state_dict(), other.model.state_dict()
    assert list(actual) == list(expected)
    assert all(torch.equal(actual[name], expected[name]) for name in expected)
    assert one.history == other.history
    assert one.history


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """By kind, a run that was never interrupted; it is made once, and only compared."""
    folder = tmp_path_factory.mktemp("whole")
    return cache(lambda kind: run(folder / f"{kind.__name__}.pt", kind))


@pytest.mark.parametrize("kind", [Net, Placed])
def test_a_resumed_run_ends_bit_for_bit_like_one_never_interrupted(
    tmp_path, kind, whole
):
    pruner, optimizer, scheduler = make(kind)
    train_(pruner, optimizer, scheduler, 150)
    assert pruner.history, "nothing was removed before the interruption"
    path = tmp_path / "part.pt"
    dp.save_checkpoint(path, pruner, optimizer, extra=scheduler.state_dict())
    assert_same(whole(kind), run(path, kind))


def test_a_run_with_a_budget_resumes_right_after_each_removal(tmp_path):
    def begin():
        torch.manual_seed(0)
        pruner = dp.Pruner(
            Net(), torch.rand(4, 5), budget=dp.Budget(macs=0.3, steps=60)
        )
        optimizer = optim.Adam(pruner.parameter_groups(lr=0.01))
        return pruner, optimizer, optim.lr_scheduler.ExponentialLR(optimizer, 1.0)

    whole = begin()
    while whole[0].steps < 60:
        train_(*whole, 1)
        if whole[0].history and whole[0].history[-1].step == whole[0].steps:
            dp.save_checkpoint(tmp_path / f"{whole[0].steps}.pt", *whole[:2])
    assert len(whole[0].history) > 2
    for path in tmp_path.iterdir():
        resumed = begin()
        dp.load_checkpoint(path, *resumed[:2])
        train_(*resumed, 60 - resumed[0].steps)
        assert_same(whole[0], resumed[0])


def run_and_die(path, delay):
    """Train in a process that is killed so many seconds after its first checkpoint."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    process = multiprocessing.get_context("fork").Process(target=run, args=(path,))
    process.start()
    while process.is_alive() and not (
        path.exists() and path.stat().st_mtime_ns > before
    ):
        time.sleep(0.005)
    time.sleep(delay)
    process.kill()
    process.join()


def test_a_killed_run_ends_bit_for_bit_like_one_never_interrupted(tmp_path, whole):
    """In forks of a process that has imported torch, and done nothing else."""
    path = tmp_path / "run.pt"
    subprocess.run([sys.executable, __file__, path], check=True)  # noqa: S603 - this file
    assert_same(whole(Net), run(path))


def test_a_fresh_model_computes_the_same(tmp_path):
    pruner, optimizer, scheduler = make()
    train_(pruner, optimizer, scheduler, 150)
    dp.save_checkpoint(tmp_path / "run.pt", pruner, optimizer, extra={"epoch": 3})
    fresh, fresh_optimizer, _ = make(seed=9)
    assert dp.load_checkpoint(tmp_path / "run.pt", fresh, fresh_optimizer) == {
        "epoch": 3
    }
    x = torch.randn(7, 5)
    assert torch.equal(fresh.model.eval()(x), pruner.model.eval()(x))
    assert fresh.summary() == pruner.summary()
    assert fresh.plan == pruner.plan
    small, fresh_small = pruner.finalize(), fresh.finalize()
    assert torch.equal(small(x), fresh_small(x))


@pytest.fixture(scope="module")
def saved_once(tmp_path_factory):
    pruner, optimizer, scheduler = make()
    train_(pruner, optimizer, scheduler, 150)
    path = tmp_path_factory.mktemp("saved") / "run.pt"
    dp.save_checkpoint(path, pruner, optimizer)
    return path.read_bytes()


@pytest.fixture
def saved(saved_once, tmp_path):
    path = tmp_path / "run.pt"
    path.write_bytes(saved_once)
    return path


def assert_refused(path, pruner, optimizer, match):
    before = copy.deepcopy((pruner.model.state_dict(), optimizer.state_dict()))
    with pytest.raises(ArgumentError, match=match):
        dp.load_checkpoint(path, pruner, optimizer)
    after = pruner.model.state_dict(), optimizer.state_dict()
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert pruner.steps == 0
    assert not pruner.history


@pytest.mark.parametrize("size", [0, 100, 5000])
def test_truncated_files_are_refused(saved, size):
    saved.write_bytes(saved.read_bytes()[:size])
    pruner, optimizer, _ = make()
    assert_refused(
        saved, pruner, optimizer, "is damaged, or not a file that diffprune wrote"
    )


class Hostile:
    def __reduce__(self):
        return Path.touch, (Path("owned"),)


def test_pickled_code_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"version": Hostile()}, tmp_path / "evil.pt")
    pruner, optimizer, _ = make()
    assert_refused(tmp_path / "evil.pt", pruner, optimizer, "damaged, or not")
    assert not Path("owned").exists()


def edited(path, change):
    """Change a checkpoint as someone would who knows how its digest is made."""
    state = _read(path)
    change(state)
    path.write_bytes(_packed(state, state.pop("version", VERSION)))
    return path


def put_state(**values):
    return lambda state: state["optimizer"]["state"][0].update(values)


def put_option(**values):
    return lambda state: state["optimizer"]["param_groups"][0].update(values)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda s: s.pop("random"), "lacks .'random'"),
        (lambda s: s.update(version=9), "version 9, this diffprune reads version 3"),
        (lambda s: s["model"].pop("fc1.bias"), "of another model: for `fc1.bias`"),
        (
            lambda s: s["model"].update({"fc1.bias": torch.rand(9, 9)}),
            r"`fc1.bias` it hold",
        ),
        (lambda s: s["pruner"].update(plan="{}"), "not a removal plan"),
        (lambda s: s["pruner"]["kept"].pop("fc1"), "it has the gates"),
        (lambda s: s["pruner"]["kept"].update(fc1=[99]), "keeps other units"),
        (lambda s: s["pruner"].pop("steps"), "damaged, or that of another model"),
        (lambda s: s["optimizer"]["param_groups"].pop(), "groups of"),
        (lambda s: s["model"].update(more=torch.ones(1)), "it holds `more`"),
        (put_state(exp_avg=torch.ones(1)), r"`exp_avg` of shape .1. for `fc1.weight`"),
        (put_state(exp_avg_sq=torch.ones(9, 9)), "`exp_avg_sq` of shape .9, 9."),
        (put_state(step=torch.ones(9)), "`step` of shape .9."),
        (lambda s: s["optimizer"]["state"][0].pop("exp_avg"), "remembers .*step.* of"),
        (lambda s: s["optimizer"]["state"].update({99: {}}), "of no parameter"),
        (put_option(lr="fast"), "its `lr` is 'fast'"),
        (put_option(lr=float("nan")), "its `lr` is nan"),
        (lambda s: s["random"].update(torch=torch.ones(3)), "random generators are da"),
        (lambda s: s["random"].pop("numpy"), "random generators are damaged"),
    ],
)
def test_files_that_were_tampered_with_are_refused(saved, change, match):
    pruner, optimizer, _ = make()
    assert_refused(edited(saved, change), pruner, optimizer, match)


def test_a_file_does_not_choose_the_kernel(saved):
    edited(saved, put_option(fused=True, foreach=True, capturable=True))
    pruner, optimizer, _ = make()
    dp.load_checkpoint(saved, pruner, optimizer)
    group = optimizer.param_groups[0]
    assert [group[k] for k in ("fused", "foreach", "capturable")] == [None, None, False]


def test_a_flipped_bit_is_noticed(saved):
    data = bytearray(saved.read_bytes())
    tensor = _read(saved)["model"]["fc1.weight"]
    place = data.index(tensor.numpy().tobytes())
    data[place + 5] ^= 16
    saved.write_bytes(data)
    pruner, optimizer, _ = make()
    assert_refused(saved, pruner, optimizer, "is damaged: what it holds is not what")


@pytest.mark.parametrize(
    "extra",
    [{"f": print}, {"a": [Path()]}, {"a": {"b": np.float64(1)}}, {"a": {Path(): 1}}],
)
def test_only_what_can_be_loaded_is_saved(tmp_path, extra):
    pruner, optimizer, _ = make()
    with pytest.raises(ArgumentError, match=r"extra.* is a .* without pickled code"):
        dp.save_checkpoint(tmp_path / "run.pt", pruner, optimizer, extra=extra)
    assert not list(tmp_path.iterdir())


def test_random_generators_go_on(saved):
    def draw():
        return random.random(), np.random.rand(), float(torch.rand(()))  # noqa: NPY002, S311

    pruner, optimizer, _ = make()
    dp.load_checkpoint(saved, pruner, optimizer)
    first = draw()
    pruner, optimizer, _ = make()
    dp.load_checkpoint(saved, pruner, optimizer)
    assert draw() == first


def test_another_architecture_is_refused(saved):
    pruner, optimizer, _ = make(hidden=17)
    assert_refused(saved, pruner, optimizer, "that of another model")


@pytest.mark.parametrize("kind", [Net, Placed])
def test_a_run_that_went_on_can_go_back(kind):
    pruner, optimizer, scheduler = make(kind, every=1)
    average = optim.swa_utils.AveragedModel(pruner.model)
    pruner.add_copy(average)
    train_(pruner, optimizer, scheduler, 2)
    things = pruner, pruner.model, average, optimizer, scheduler
    states = [copy.deepcopy(thing.state_dict()) for thing in things]
    random, before = torch.get_rng_state(), pruner.shape()
    train_(pruner, optimizer, scheduler, 10)
    expected = copy.deepcopy(pruner.model.state_dict())
    assert pruner.shape().parameters < before.parameters

    pruner.load_state_dict(states[0], optimizer)
    for thing, state in zip(things[1:], states[1:], strict=True):
        thing.load_state_dict(state)
    assert pruner.shape() == before
    torch.set_rng_state(random)
    train_(pruner, optimizer, scheduler, 10)
    for name, tensor in pruner.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize("kind", [Net, Placed])
def test_a_run_goes_back_by_its_file_to_before_its_first_removal(kind, tmp_path):
    """What has come to nothing starts again from there; another model does not."""
    pruner, optimizer, scheduler = make(kind, every=4)
    train_(pruner, optimizer, scheduler, 3)
    dp.save_checkpoint(tmp_path / "whole", pruner, optimizer)
    before = copy.deepcopy(pruner.model.state_dict())
    train_(pruner, optimizer, scheduler, 9)
    assert pruner.history
    dp.load_checkpoint(tmp_path / "whole", pruner, optimizer)
    for name, tensor in pruner.model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert not pruner.history
    train_(pruner, optimizer, scheduler, 1)
    assert pruner.history


def test_a_run_whose_gates_are_folded_away_goes_back_by_its_file(tmp_path):
    run_ = with_budget()
    x = torch.rand(4, 5)
    steps_(run_, 4)
    dp.save_checkpoint(tmp_path / "early", *run_)
    steps_(run_, 16)
    assert run_[0].state_dict()["folded"]
    expected = copy.deepcopy(run_[0].model).eval()(x)
    dp.load_checkpoint(tmp_path / "early", *run_)
    assert not run_[0].state_dict()["folded"]
    steps_(run_, 16)
    assert torch.equal(run_[0].model.eval()(x), expected)


def test_a_checkpoint_of_a_finished_run_is_loaded(tmp_path):
    pruner, optimizer, _ = make(every=1)
    scheduler = optim.lr_scheduler.ConstantLR(optimizer)
    train_(pruner, optimizer, scheduler, 3)
    small = pruner.finalize(optimizer)
    dp.save_checkpoint(tmp_path / "last", pruner, optimizer)
    again, fresh, _ = make(every=1)
    dp.load_checkpoint(tmp_path / "last", again, fresh)
    x = torch.rand(4, 5)
    assert torch.equal(again.finalize().eval()(x), small.eval()(x))
    with pytest.raises(ArgumentError, match="was finalized"):
        dp.load_checkpoint(tmp_path / "last", pruner, optimizer)


def with_budget():
    torch.manual_seed(0)
    pruner = dp.Pruner(Net(), torch.rand(4, 5), budget=dp.Budget(macs=0.5, steps=20))
    return pruner, optim.Adam(pruner.parameter_groups(lr=0.01))


def steps_(run_, count):
    pruner, optimizer = run_
    for _ in range(count):
        x = torch.randn(32, 5)
        optimizer.zero_grad()
        nn.functional.mse_loss(pruner.model(x), x[:, :1].relu()).backward()
        optimizer.step()
        pruner.step(optimizer)


@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("kind", [optim.SGD, optim.RMSprop])
def test_an_optimizer_of_another_kind_is_refused(tmp_path, kind, steps):
    run_ = make()
    train_(*run_, steps)
    dp.save_checkpoint(tmp_path / "file", *run_[:2])
    pruner, *_ = make()
    other = kind(pruner.parameter_groups(), lr=0.1)
    before = other.state_dict()
    with pytest.raises(ArgumentError, match="it has no option"):
        dp.load_checkpoint(tmp_path / "file", pruner, other)
    assert other.state_dict() == before


def test_an_optimizer_that_was_loaded_too_early_is_told_apart():
    run_ = with_budget()
    steps_(run_, 4)
    pruner, optimizer = with_budget()
    optimizer.load_state_dict(run_[1].state_dict())
    with pytest.raises(ArgumentError, match="load the state of the pruner first"):
        pruner.load_state_dict(run_[0].state_dict(), optimizer)


def test_an_optimizer_that_cannot_go_back_changes_nothing():
    pruner, optimizer, scheduler = make(every=1)
    train_(pruner, optimizer, scheduler, 2)
    state, other = pruner.state_dict(), optim.SGD(nn.Linear(1, 1).parameters(), 0.1)
    train_(pruner, optimizer, scheduler, 10)
    before = copy.deepcopy(pruner.model.state_dict()), pruner.shape(), pruner.steps
    with pytest.raises(ArgumentError, match="does not hold"):
        pruner.load_state_dict(state, other)
    assert (pruner.shape(), pruner.steps) == before[1:]
    for name, tensor in pruner.model.state_dict().items():
        assert torch.equal(tensor, before[0][name]), name
    train_(pruner, optimizer, scheduler, 5)


def test_a_checkpoint_of_an_earlier_version_is_refused_by_name(tmp_path):
    torch.save({"version": 2}, tmp_path / "old.pt")
    pruner, optimizer, _ = make()
    assert_refused(tmp_path / "old.pt", pruner, optimizer, "file of `torch.save`")


def test_what_shared_memory_with_the_model_does_not_after_loading(tmp_path):
    pruner, optimizer, _ = make()
    best = dict(pruner.model.state_dict())
    path = tmp_path / "run.pt"
    dp.save_checkpoint(path, pruner, optimizer, extra={"best": best})
    stored = sum(t.nbytes for t in best.values())
    assert path.stat().st_size < 1.9 * stored + 30_000  # but once in the file
    fresh, fresh_optimizer, _ = make(seed=1)
    loaded = dp.load_checkpoint(path, fresh, fresh_optimizer)["best"]
    with torch.no_grad():
        fresh.model.fc1.weight.zero_()
    assert torch.equal(loaded["fc1.weight"], best["fc1.weight"])
    assert best["fc1.weight"].any()


def test_what_fails_at_the_very_end_gives_the_memory_back(saved, monkeypatch):
    pruner, optimizer, _ = make()
    dp.load_checkpoint(saved, pruner, optimizer)  # now the shapes are those of the file
    with torch.no_grad():
        pruner.model.fc2.weight += 1
    before = copy.deepcopy((pruner.model.state_dict(), optimizer.state_dict()))
    memory = pruner.model.fc2.weight.data_ptr()
    monkeypatch.setattr("diffprune._io.checkpoint.set_random_states", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        dp.load_checkpoint(saved, pruner, optimizer)
    after = pruner.model.state_dict(), optimizer.state_dict()
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert pruner.model.fc2.weight.data_ptr() == memory


def test_a_missing_file_is_a_missing_file(tmp_path):
    pruner, optimizer, _ = make()
    with pytest.raises(FileNotFoundError):
        dp.load_checkpoint(tmp_path / "no.pt", pruner, optimizer)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for delay in (0.0, 0.2):
        run_and_die(Path(sys.argv[1]), delay)

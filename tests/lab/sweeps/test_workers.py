import shutil
from dataclasses import replace

import pytest
from rich.console import Console

from diffprune.errors import ArgumentError
from diffprune.lab import Recipe, Search, read_run
from diffprune.lab.sweeps import sweep, trials as run, workers
from diffprune.lab.sweeps.pareto import Front

pytest.importorskip("optuna")
RECIPE = Recipe(name="toy", epochs=2, batch_size=8, lr=1e-2)


def test_every_value_is_a_run_and_the_front_shows_them(task, tmp_path):
    out = tmp_path / "sweep"
    front = sweep(task, {"macs": [0.25, 0.5]}, out=out, recipe=RECIPE)
    assert [run.name for run in front.runs] == ["macs=0.5", "macs=0.25"]
    assert [run.outcome.macs for run in front.runs] == [96, 48]
    assert "macs=0.25" in front.best
    assert [row["is_best"] for row in front.to_dict()][-1]
    assert read_run(out / "macs=0.5").recipe.budget == {"macs": 0.5}
    console = Console(width=100, record=True)
    console.print(front.table())
    assert "macs=0.25" in console.export_text()


def test_the_table_has_no_column_without_numbers(done):
    def columns(run):
        return [column.header for column in Front((run,), frozenset()).table().columns]

    without = replace(done, outcome=replace(done.outcome, validation_error=None))
    assert columns(done) == [*columns(without)[:3], "validation %", "test %", "front"]


def test_the_figure_names_every_run(task, tmp_path):
    pytest.importorskip("altair")
    front = sweep(task, {"macs": [0.5]}, out=tmp_path / "sweep", recipe=RECIPE)
    front.figure(tmp_path / "front.svg")
    assert "macs=0.5" in (tmp_path / "front.svg").read_text()


def test_what_is_finished_is_not_trained_again(task, tmp_path, monkeypatch):
    out = tmp_path / "sweep"
    sweep(task, {"macs": [0.5]}, out=out, recipe=RECIPE)
    trained = []

    def spy(make_task, recipe, **options):
        trained.append(recipe.budget)
        return run_train(make_task, recipe, **options)

    run_train = run.train
    monkeypatch.setattr(run, "train", spy)
    front = sweep(task, {"macs": [0.5, 0.3]}, out=out, recipe=RECIPE)
    assert trained == [{"macs": 0.3}]
    assert len(front.runs) == 2


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"macs": [0.5]}, {"macs": [0.5]}),
        (
            Search(ranges={"macs": (0.2, 0.8)}, trials=1),
            Search(ranges={"macs": (0.2, 0.8)}, trials=1),
        ),
        (
            Search(ranges={"macs": (0.2, 0.8)}, trials=1),
            Search(ranges={"parameters": (0.2, 0.8)}, trials=1),
        ),
    ],
    ids=["values", "search", "another search"],
)
def test_results_of_another_recipe_are_not_taken_for_these(task, tmp_path, first, then):
    sweep(task, first, out=tmp_path / "s", recipe=RECIPE)
    other = RECIPE if first != then else replace(RECIPE, epochs=3, lr=1e-3)
    with pytest.raises(ArgumentError, match=r"holds a run with .*\nName another dir"):
        sweep(task, then, out=tmp_path / "s", recipe=other)


def test_results_of_another_task_are_not_taken_for_these(task, tmp_path):
    sweep(task, {"macs": [0.5]}, out=tmp_path / "s", recipe=RECIPE)
    other = tmp_path / "other.py"
    other.write_text((tmp_path / "toy.py").read_text())
    with pytest.raises(ArgumentError, match=r"a run of `.*toy.py:make`, not of `.*oth"):
        sweep(f"{other}:make", {"macs": [0.5]}, out=tmp_path / "s", recipe=RECIPE)


def test_a_run_that_was_deleted_is_trained_again(task, tmp_path):
    first = sweep(task, {"macs": [0.5]}, out=tmp_path / "s", recipe=RECIPE)
    shutil.rmtree(tmp_path / "s" / "macs=0.5")
    front = sweep(task, {"macs": [0.5]}, out=tmp_path / "s", recipe=RECIPE)
    assert [run.outcome.macs for run in front.runs] == [
        run.outcome.macs for run in first.runs
    ]


def test_a_run_that_fails_is_told_and_can_be_repeated(task, tmp_path, monkeypatch):
    def fail(*_args, **_options):
        raise RuntimeError("no")

    with monkeypatch.context() as broken:
        broken.setattr(run, "train", fail)
        with pytest.raises(RuntimeError, match="no"):
            sweep(task, {"macs": [0.5]}, out=tmp_path / "sweep", recipe=RECIPE)
    front = sweep(task, {"macs": [0.5]}, out=tmp_path / "sweep", recipe=RECIPE)
    assert len(front.runs) == 1


def test_somebody_has_to_do_it(task, tmp_path):
    with pytest.raises(ArgumentError, match=r"workers must be .* at least 1, got 0"):
        sweep(task, {"macs": [0.5]}, out=tmp_path, workers=0)


SEARCH = Search(ranges={"macs": (0.2, 0.8), "gate_lr": (1e-3, 1e-1)}, trials=3)


def test_a_search_trains_what_was_chosen_and_goes_on_for_longer(task, tmp_path):
    out = tmp_path / "sweep"
    front = sweep(task, SEARCH, out=out, recipe=RECIPE)
    names = {run.name for run in front.runs}
    assert names == {"trial-000", "trial-001", "trial-002"}
    for one in front.runs:
        assert 0.2 <= one.recipe.budget["macs"] <= 0.8
        assert 1e-3 <= one.recipe.gate_lr <= 1e-1
        assert one.outcome.macs <= one.recipe.budget["macs"] * 192
    assert front.best
    console = Console(width=120, record=True)
    console.print(front.table())
    assert "gate_lr" in console.export_text()
    more = sweep(task, replace(SEARCH, trials=4), out=out, recipe=RECIPE)
    assert {run.name for run in more.runs} == {*names, "trial-003"}


def test_several_seeds_are_one_trial(task, tmp_path):
    search = Search(ranges={"strength": (1e-4, 1e-2)}, trials=2, seeds=2)
    recipe = replace(RECIPE, seed=3)
    front = sweep(task, search, out=tmp_path / "sweep", recipe=recipe)
    seeds = {run.name: run.recipe.seed for run in front.runs}
    assert seeds == {
        f"trial-00{trial}-seed{seed}": seed for trial in (0, 1) for seed in (3, 4)
    }
    strengths = {run.name[:9]: run.recipe.strength for run in front.runs}
    assert all(run.recipe.strength == strengths[run.name[:9]] for run in front.runs)
    starred = {name[:9] for name in front.best}
    assert front.best == {name for name in seeds if name[:9] in starred}


def test_hopeless_trials_are_given_up(task, tmp_path):
    search = Search(ranges={"lr": (1e-4, 1.0)}, trials=12, goals=("error",), prune=True)
    recipe = replace(RECIPE, epochs=8, budget={"macs": 0.8}, gate_lr=1e-2)
    front = sweep(task, search, out=tmp_path / "sweep", recipe=recipe)
    assert front.given_up
    assert len(front.runs) + len(front.given_up) == 12
    for name in front.given_up:
        run = read_run(tmp_path / "sweep" / name)
        assert run.outcome is None
        assert 1 <= len(run.epochs) < 8
    (best,) = {run.outcome.test_error for run in front.runs if run.name in front.best}
    assert best == min(run.outcome.test_error for run in front.runs)


def test_numbers_that_cannot_be_trained_with_end_a_trial_not_the_search(task, tmp_path):
    search = Search(ranges={"lr": (1e30, 1e38)}, trials=2)
    recipe = replace(RECIPE, strength=1e-3)
    nothing = r"trial-00\d came to nothing: the loss became"
    with pytest.warns(UserWarning, match=nothing):
        front = sweep(task, search, out=tmp_path / "sweep", recipe=recipe)
    assert front.runs == ()


def test_an_interrupted_trial_continues_with_its_numbers(task, tmp_path, monkeypatch):
    out, search = tmp_path / "sweep", replace(SEARCH, trials=1)

    def stop(make_task, recipe, **options):
        def interrupt(_):
            raise KeyboardInterrupt

        return run_train(make_task, recipe, **(options | {"on_epoch": interrupt}))

    run_train = run.train
    with monkeypatch.context() as broken:
        broken.setattr(run, "train", stop)
        with pytest.raises(KeyboardInterrupt):
            sweep(task, search, out=out, recipe=RECIPE)
    begun = read_run(out / "trial-000")
    assert len(begun.epochs) == 1
    (run_,) = sweep(task, search, out=out, recipe=RECIPE).runs
    assert run_.recipe == begun.recipe
    assert run_.epochs[0] == begun.epochs[0]


@pytest.mark.slow
def test_workers_share_the_points(task, tmp_path):
    values = [0.6, 0.5, 0.4]
    front = sweep(
        task, {"macs": values}, out=tmp_path / "sweep", recipe=RECIPE, workers=2
    )
    assert [run.name for run in front.runs] == [f"macs={value}" for value in values]


def test_a_worker_that_is_interrupted_ends_without_a_traceback(monkeypatch):
    def stop(_job):
        raise KeyboardInterrupt

    monkeypatch.setattr(workers, "work", stop)
    with pytest.raises(SystemExit, match="130"):
        workers._work_until_told(None)

"""`python -m paper`: what it prints, writes and refuses."""

import json
from dataclasses import replace
from functools import partial

import pytest

from diffprune.lab import read_run
from paper import __main__ as commands, frontier as front, measured, recipes
from paper.ablations import sigma
from paper.experiments import EXPERIMENTS
from paper.records import RESULTS, copy_record
from paper.tables.frontier_table import points, read_frontier

SIGMOID = str(RESULTS / "lenet5" / "lenet5-sigmoid-seed0")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table", "alexnet"], "there is no `alexnet`; there are `lenet5`, `wrn`"),
        (
            ["table", "lenet5", "--results", "not there"],
            "no records; `python -m paper table lenet5 --run --results 'not there'`",
        ),
        (["table", "wrn", "--recipes", "low"], "there is no `low`; there are `wrn-"),
        (["train", "alexnet"], "there is no `alexnet`; there are `lenet5-sigmoid`"),
        (["train", "lenet5-sigmoid", "--data-dir", "empty"], "mnist was not found"),
        (["table1", "--methods", "l1"], "there is no `l1`; there are `dense`"),
        (
            ["frontier", "--aim", "tiny"],
            "there are `small`, `medium`, `normed`, `plain`",
        ),
        (["ablation", "beta"], "there are `sigma`, `fading`, `zeta`"),
        (["steps", "wrn"], "there are `wrn-28-10`, `wrn-10-2`, `wrn-10-1`"),
        (["report", "nowhere"], "`nowhere` holds no run"),
    ],
)
def test_what_cannot_be_found_is_explained(paper, arguments, message):
    done = paper(*arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert message in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["figures", "--out", "file/deep"], "cannot write"),
        (["report", SIGMOID, "--no-measure", "--out", "file/r.html"], "cannot write"),
        (["train", "lenet5-digits", "--out", "file"], "cannot write into `file`"),
        (["ablation", "sigma"], "holds no results; `python -m paper ablation sigma"),
        (["steps", "wrn-28-10"], "there is no record"),
        (["steps", "wrn-10-1", "--run"], "`python -m paper table wrn-10-1 --run`"),
    ],
)
def test_what_cannot_be_read_or_written_is_explained(
    paper, monkeypatch, arguments, message, tmp_path
):
    for package in ("altair", "vl_convert"):
        pytest.importorskip(package)
    for module in (commands, measured):
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "sigma.json").write_text('{"results": []}')
    done = paper(*arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert message in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("table", "lenet5", "--recipes", "lenet5-sigmoid"),
        ("table", "wrn", "--seeds", "1"),
        ("table", "wrn", "--out", "runs"),
        ("table1", "--methods", "l0"),
        ("table1", "--epochs", "20"),
        ("frontier", "--aim", "small"),
        ("frontier", "--untaught"),
        ("frontier", "--validate"),
    ],
    ids=" ".join,
)
def test_what_says_how_to_train_needs_a_run(paper, arguments):
    """Else it looks as if the table were of that row alone."""
    option = next(word for word in arguments if word.startswith("--"))
    done = paper(*arguments)
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"Add `--run` to train, or leave `{option}` out." in done.stderr


def test_figures_need_their_packages(paper, monkeypatch):
    monkeypatch.setattr(commands, "find_spec", lambda _: None)
    done = paper("figures")
    assert done.exit_code == 1
    assert "pip install 'diffprune[report]'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["frontier", "--run", "--aim", "medium"], "the same command goes on from"),
        (["ablation", "sigma", "--run"], "the same command starts anew"),
    ],
)
def test_who_interrupts_is_told_how_to_go_on(paper, monkeypatch, arguments, message):
    def stops(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(front, "train", stops)
    monkeypatch.setattr(sigma, "measure", stops)
    done = paper(*arguments)
    assert (done.exit_code, done.stdout) == (130, "")
    assert message in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "train",
        "table",
        "table1",
        "frontier",
        "ablation",
        "calibrate",
        "steps",
        "figures",
        "report",
    ],
)
def test_every_command_teaches_by_example(paper, command):
    done = paper(command, "--help")
    assert done.exit_code == 0
    assert f"python -m paper {command}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["table", "lenet5"], "DiffPrune reg"),
        (["table", "wrn"], "WRN-10-2"),
        (["table", "wrn-10-1"], "WRN-10-1"),
        (["table1"], "MDR (reconstruction)"),
        (["frontier"], "diffprune, small"),
        (["ablation", "sigma"], "sigma"),
        (["ablation", "fading"], "2-6-38-20"),
        (["ablation", "zeta"], "at least 0"),
        (["ablation", "live_removal"], "removed"),
        (["calibrate"], "28-27-40-37-2-2"),
        (["steps", "wrn-28-10"], "5,243,328,768"),
        (["steps", "wrn-10-2"], "wrn-10-2-low"),
        (["steps", "wrn-10-1"], "wrn-10-1-low"),
    ],
    ids=" ".join,
)
def test_what_is_on_record_is_printed(paper, arguments, text):
    done = paper(*arguments)
    assert done.exit_code == 0, done.stderr
    assert text in done.stdout


@pytest.fixture
def records(run_folder, tmp_path):
    """A record of a finished run, as if it were one of the paper's."""
    copy_record(run_folder, tmp_path / "records/mine", "abc")
    return "records"


def test_json_is_our_runs(paper, records):
    done = paper("table", "lenet5", "--results", records, "--json")
    (run,) = json.loads(done.stdout)
    assert (run["folder"], run["epochs"]) == ("records/mine", 1)


def test_a_table_is_run_where_it_is_asked_to(paper, monkeypatch, toy, recipe, tmp_path):
    def tiny(seed):
        return replace(recipe, name="lenet5-sigmoid", seed=seed)

    chosen = replace(EXPERIMENTS["lenet5"], runs=((toy, tiny),))
    monkeypatch.setattr(commands, "EXPERIMENTS", {"lenet5": chosen})
    asked = ("table", "lenet5", "--run", "--seeds", "2", "--epochs", "1")
    done = paper(*asked, "--results", "kept")
    assert done.exit_code == 0, done.stderr
    assert "Record written to kept/lenet5-sigmoid-seed1." in done.stderr
    assert "seed 1" in done.stdout
    assert (tmp_path / "runs/lenet5-sigmoid-seed0/summary.json").exists()
    again = paper(*asked, "--results", "kept", "--out", "anew")
    assert again.stdout == done.stdout
    assert not (tmp_path / "anew").exists()  # what is on record is not run again


def test_the_record_of_a_longer_run_is_not_lost_to_a_short_one(
    paper, monkeypatch, toy, recipe, tmp_path
):
    make = partial(replace, recipe, name="lenet5-sigmoid")
    runs = ((toy, lambda seed: make(seed=seed)),)
    chosen = replace(EXPERIMENTS["lenet5"], runs=runs)
    monkeypatch.setattr(commands, "EXPERIMENTS", {"lenet5": chosen})
    asked = ("table", "lenet5", "--run", "--results", "kept", "--epochs")
    assert paper(*asked, "2").exit_code == 0
    done = paper(*asked, "1", "--out", "anew")
    assert done.exit_code == 1
    assert "its `epochs` is 2, and 1 is asked for" in done.stderr
    assert len(read_run(tmp_path / "kept/lenet5-sigmoid-seed0").epochs) == 2
    assert not (tmp_path / "anew").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "lenet5-digits", "--epochs", "0"),
        ("train", "lenet5-digits", "--seed", "-1"),
        ("table", "lenet5", "--epochs", "0"),
        ("table", "lenet5", "--seeds", "0"),
        ("table1", "--epochs", "0"),
        ("table1", "--seeds", "-1"),
        ("frontier", "--seeds", "0"),
    ],
)
def test_numbers_below_the_least_are_refused(paper, arguments):
    done = paper(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "greater than or equal to" in done.stderr


def test_one_row_is_run_and_kept_even_if_it_is_interrupted(
    paper, monkeypatch, toy, recipe, tmp_path
):
    def stops(recipe):
        calls.append(recipe.name)
        task = toy(recipe)
        return replace(task, test=_Stopping(task.test, after=2))

    calls = []
    runs = tuple(
        (stops, lambda seed, name=name: replace(recipe, name=name, seed=seed))
        for name in ("lenet5-softmax", "lenet5-sigmoid")
    )
    chosen = replace(EXPERIMENTS["lenet5"], runs=runs)
    monkeypatch.setattr(commands, "EXPERIMENTS", {"lenet5": chosen})
    asked = ("--run", "--recipes", "lenet5-sigmoid", "--results", "kept")
    done = paper("table", "lenet5", *asked)
    assert calls == ["lenet5-sigmoid"]
    assert "goes on from here" in done.stderr
    assert len(read_run(tmp_path / "kept/lenet5-sigmoid-seed0").epochs) == 1


class _Stopping:
    """Data that is interrupted, as by Ctrl-C, when it is asked for too often."""

    def __init__(self, batches, after):
        self._batches, self._left = batches, after

    def __len__(self):
        return len(self._batches)

    def __iter__(self):
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return iter(self._batches)


def test_training_says_where_the_run_is(paper, monkeypatch, toy, recipe):
    monkeypatch.setattr(recipes, "TASKS", {"toy": (toy, lambda _: recipe)})
    done = paper("train", "toy", "--epochs", "1")
    assert done.exit_code == 0, done.stderr
    assert "Written to runs/toy-seed0." in done.stdout


def test_an_ablation_that_is_run_leaves_a_record(paper, monkeypatch, tmp_path):
    result = sigma.Result(
        sigma=0.1, seed=7, epoch=3, raw={"a": 5}, validation_error=1.0, test_error=2.0
    )
    monkeypatch.setattr(sigma, "measure", lambda: [result])
    monkeypatch.setattr(commands, "RESULTS", tmp_path)
    done = paper("ablation", "sigma", "--run")
    assert f"Record written to {tmp_path / 'sigma.json'}." in done.stderr.replace(
        "\n", ""
    )
    record = json.loads((tmp_path / "sigma.json").read_text())
    assert record["command"] == "python -m paper ablation sigma --run"
    assert "0.1" in done.stdout


def test_a_report_shows_what_is_published(paper, tmp_path):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    done = paper("report", SIGMOID, "--no-measure")
    assert done.exit_code == 0, done.stderr
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "BC-GHS" in page
    assert "Written to report.html" in done.stdout


def test_every_run_of_an_experiment_has_a_folder_of_its_own():
    for experiment in EXPERIMENTS.values():
        made = [make(seed) for _, make in experiment.runs for seed in range(2)]
        assert len({recipe.folder_name for recipe in made}) == len(made)


def test_every_experiment_prints_a_table_of_its_runs(done, lines_of):
    for experiment in EXPERIMENTS.values():
        _, make_recipe = experiment.runs[0]
        run = replace(done, recipe=make_recipe(0))
        text = "".join(lines_of(experiment.table([run])))
        assert f"{run.epochs[-1].test_error:.2f}" in text


def test_frontier_points_have_the_widths_of_the_run_before():
    found = points(read_frontier())
    ours = {point.name: point for point in found if point.is_ours}
    first, again = ours["diffprune, small 0"], ours["diffprune, small again 0"]
    assert first.architecture == again.architecture
    assert first.error != again.error

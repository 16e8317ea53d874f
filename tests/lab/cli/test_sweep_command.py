import json

import pytest

pytest.importorskip("optuna")


@pytest.mark.usefixtures("source")
def test_a_run_for_each_value(diffprune, tmp_path):
    done = diffprune(
        *("sweep", "mine.py:task", "--vary", "parameters=0.9,0.6", "--epochs", "2"),
        *("--out", "all", "--figure", "front.svg", "--json"),
    )
    assert done.exit_code == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["name"] for row in rows] == ["parameters=0.9", "parameters=0.6"]
    assert rows[1]["parameters"] <= 0.6 * 50
    assert (tmp_path / "front.svg").exists()
    assert (tmp_path / "all" / "parameters=0.6" / "summary.json").exists()


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["--vary", "macs"], "does not say what to vary"),
        (["--vary", "mac=0.5"], "cannot vary `mac`"),
        (["--vary", "pretrained=1"], "cannot vary `pretrained`"),
        ([], "values or ranges"),
        (["--vary", "macs=0.5", "--search", "macs=0.1..0.6"], "not both"),
        (["--vary", "macs=0.5", "--goal", "error"], "`--goal` belongs to a search"),
        (["--search", "macs"], "is no range: type `--search macs=LOW..HIGH`"),
        (["--search", "macs=0.6..0.1"], "type `--search macs=0.1..0.6`"),
        (["--search", "macs=0.1..0.1"], "is empty"),
        (["--search", "speed=1..2"], "cannot look for `speed`"),
        (["--search", "macs=0.1..0.6", "--prune"], "for one goal only"),
        (["--search", "macs=0.1..0.6", "--storage", "x://y"], "cannot be used"),
        (["--search", "macs=0.1..0.6", "--on", "mars"], "on must be"),
        (["--search", "macs=0.1..0.6", "--sampler", "luck"], "sampler must be"),
    ],
)
def test_what_cannot_be_meant_is_said(diffprune, typed, message):
    done = diffprune("sweep", "mine.py:task", *typed)
    assert done.exit_code == 1
    assert message in " ".join(done.stderr.split())


@pytest.mark.usefixtures("source")
def test_a_search(diffprune, tmp_path):
    done = diffprune(
        *("sweep", "mine.py:task", "--search", "gate_lr=1e-3..1e-1", "--trials", "2"),
        *("--budget", "parameters=0.9", "--goal", "error", "--prune", "--epochs", "2"),
        *("--seed", "5", "--out", "all"),
    )
    assert done.exit_code == 0, done.stderr
    assert "gate_lr" in done.stdout
    recipe = json.loads((tmp_path / "all" / "trial-001" / "recipe.json").read_text())
    assert (recipe["budget"], recipe["seed"]) == ({"parameters": 0.9}, 5)


@pytest.mark.usefixtures("source")
def test_a_figure_that_cannot_be_drawn_costs_no_training(diffprune, tmp_path):
    vary = ("--vary", "macs=0.5", "--figure", "front.pdf")
    done = diffprune("sweep", "mine.py:task", *vary)
    assert done.exit_code == 1
    assert "path must end in one of" in done.stderr
    assert not (tmp_path / "sweeps").exists()


@pytest.mark.usefixtures("source")
def test_ctrl_c_says_how_to_go_on(diffprune, monkeypatch):
    def stop(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("diffprune.lab.sweeps.sweep", stop)
    done = diffprune("sweep", "mine.py:task", "--vary", "macs=0.5")
    assert done.exit_code == 130
    assert "Stopped; the same command goes on" in done.stderr

"""Ray runs the same workers; the study is shared with all others."""

import sys

import pytest

from diffprune.errors import MissingPackageError, ProcessError
from diffprune.lab import Recipe, Search
from diffprune.lab.sweeps import sweep

pytest.importorskip("optuna")
RECIPE = Recipe(name="toy", epochs=2, batch_size=8, lr=1e-2)
SEARCH = Search(ranges={"macs": (0.2, 0.8)}, trials=3)


def test_without_ray_it_says_how_to_install_it(task, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'diffprune\[ray\]'"):
        sweep(task, SEARCH, out=tmp_path / "sweep", recipe=RECIPE, on="ray")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_runs_the_trials(task, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    monkeypatch.chdir(tmp_path)
    front = sweep("toy.py:make", SEARCH, out="sweep", recipe=RECIPE, on="ray")
    assert {run.name for run in front.runs} == {f"trial-00{n}" for n in range(3)}
    assert not ray.is_initialized()
    # What is finished is known to everybody else.
    again = sweep(task, SEARCH, out="sweep", recipe=RECIPE)
    assert [run.epochs for run in again.runs] == [run.epochs for run in front.runs]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_worker_that_fails_on_ray_is_an_error_here(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed")
    (tmp_path / "bad.py").write_text(
        "def make(recipe):\n    raise RuntimeError('oh')\n"
    )
    with pytest.raises(ProcessError, match=r"failed on Ray(.|\n)*RuntimeError: oh"):
        sweep(
            f"{tmp_path / 'bad.py'}:make",
            SEARCH,
            out=tmp_path / "sweep",
            recipe=RECIPE,
            on="ray",
        )

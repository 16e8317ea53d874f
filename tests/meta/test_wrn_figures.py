"""The figures of the wide ResNet are those of its records."""

import json
import runpy
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

ROOT = Path(__file__).parents[2]
FIGURES = runpy.run_path(str(ROOT / "docs" / "wrn_figures.py"))


@pytest.fixture(scope="module")
def runs():
    return FIGURES["read_records"](FIGURES["RECORDS"])


@pytest.fixture(scope="module")
def timings():
    return FIGURES["read_timings"](FIGURES["TIMINGS"])


@pytest.mark.parametrize("figure", FIGURES["FIGURES"], ids=lambda figure: figure.file)
def test_a_figure_matches_the_records(figure, runs, timings, tmp_path):
    FIGURES["draw"](figure, runs, timings).save(tmp_path / "figure.svg")
    drawn = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    committed = (FIGURES["PICTURES"] / figure.file).read_text(encoding="utf-8")
    assert drawn == committed, "run `python docs/wrn_figures.py`"


def test_every_epoch_of_every_run_is_a_point(runs, timings):
    first = replace(runs[0], epochs=runs[0].epochs[:1])
    (epoch,) = first.epochs
    values = [
        point["value"]
        for figure in FIGURES["FIGURES"]
        for point in FIGURES["points"](figure, [first], timings)
    ]
    assert values == pytest.approx(
        [
            100 - epoch.test_error,
            epoch.macs * first.recipe.batch_size / 1e6,
            timings[first.recipe.name, epoch.number],
        ]
    )


def test_a_minute_in_which_all_is_slow_does_not_show(tmp_path):
    results = [
        {"run": "low", "epoch": 1, "seconds": 0.2, "original": 0.4},
        {"run": "low", "epoch": 2, "seconds": 0.1, "original": 0.2},
        {"run": "low", "epoch": 3, "seconds": 0.03, "original": 0.1},
    ]
    path = tmp_path / "epochs.json"
    path.write_text(json.dumps({"results": results}), encoding="utf-8")
    found = FIGURES["read_timings"](path)
    assert [found["low", n] for n in (1, 2, 3)] == pytest.approx([0.1, 0.1, 0.06])
    assert [found[FIGURES["ORIGINAL"], n] for n in (1, 2, 3)] == [0.2] * 3

"""The figures of the wide ResNet are those of its records."""

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


@pytest.mark.parametrize("figure", FIGURES["FIGURES"], ids=lambda figure: figure.file)
def test_a_figure_matches_the_records(figure, runs, tmp_path):
    FIGURES["draw"](figure, runs).save(tmp_path / "figure.svg")
    drawn = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    committed = (FIGURES["PICTURES"] / figure.file).read_text(encoding="utf-8")
    assert drawn == committed, "run `python docs/wrn_figures.py`"


def test_every_epoch_of_every_run_is_a_point(runs):
    (accuracy, macs, seconds) = FIGURES["FIGURES"]
    first = replace(runs[0], epochs=runs[0].epochs[:1])
    (epoch,) = first.epochs
    values = [
        point["value"]
        for figure in (accuracy, macs, seconds)
        for point in FIGURES["points"](figure, [first])
    ]
    assert values == pytest.approx(
        [
            100 - epoch.test_error,
            epoch.macs * first.recipe.batch_size / 1e6,
            epoch.processor_seconds / epoch.steps,
        ]
    )

"""The figure of the frontier is that of its record."""

import runpy
from pathlib import Path

import pytest

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

ROOT = Path(__file__).parents[2]
FIGURE = runpy.run_path(str(ROOT / "docs" / "frontier_figure.py"))


def test_the_figure_matches_the_record(tmp_path):
    FIGURE["draw"](FIGURE["read"]()).save(tmp_path / "figure.svg")
    drawn = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    committed = FIGURE["PICTURE"].read_text(encoding="utf-8")
    assert drawn == committed, "run `python docs/frontier_figure.py`"


def test_only_what_others_published_has_a_name():
    names = {
        point["kind"]: point["name"] for point in FIGURE["shown"](FIGURE["read"]())
    }
    assert names["diffprune"] == ""
    assert names["published"] != ""

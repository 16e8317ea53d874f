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


def test_what_is_published_and_not_beaten_has_a_name():
    points = [
        {"name": "small", "weights": 1, "error": 2.0, "is_ours": False},
        {"name": "beaten", "weights": 3, "error": 2.0, "is_ours": False},
        {"name": "good", "weights": 3, "error": 1.0, "is_ours": False},
        {"name": "ours", "weights": 1, "error": 0.5, "is_ours": True},
    ]
    found = list(FIGURE["shown"](points, "weights"))
    assert [point["name"] for point in found] == ["small", "", "good", ""]
    assert found[-1]["kind"] == "diffprune"

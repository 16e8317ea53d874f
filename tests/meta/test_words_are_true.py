"""Figures and links: each table comes from its record, each path leads somewhere."""

import pydoc
import re
import runpy
from pathlib import Path

import pytest

import diffprune

ROOT = Path(__file__).parents[2]
TABLES = runpy.run_path(str(ROOT / "docs" / "tables.py"))
FIGURE = runpy.run_path(str(ROOT / "docs" / "figure.py"))
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
PAPER = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
CODE = re.compile(r"`((?:gates|graph|surgery|pruner|recipes|[A-Z]\w+)\.[\w.]+)")
STATE = {f"Gate.{name}" for name in diffprune.Gate(2, dropout=0.1).state_dict()}


def test_tables_of_the_readme_match_the_records():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert TABLES["fill"](text) == text, "run `python docs/tables.py`"


def test_the_picture_matches_its_record():
    drawn = FIGURE["draw"](FIGURE["read"](FIGURE["METRICS"]))
    committed = FIGURE["PICTURE"].read_text(encoding="utf-8")
    assert committed == drawn, "run `python docs/figure.py`"


def test_the_curve_ends_where_the_summary_says():
    record = TABLES["_load"](ROOT / "results" / "demo" / "seed-0.json")
    epochs = FIGURE["read"](FIGURE["METRICS"])
    assert epochs[0].widths == record["dense"]["raw_widths"]
    assert epochs[-1].widths == record["pruned"]["raw_widths"]
    assert epochs[-1].number == record["recipe"]["epochs"]


@pytest.mark.parametrize("name", TABLES["TABLES"])
def test_a_table_without_records_says_which_command_makes_them(name, tmp_path):
    assert "There is no record yet; `" in TABLES["TABLES"][name](tmp_path)


def test_an_unknown_table_is_an_error():
    with pytest.raises(KeyError, match="nothing"):
        TABLES["fill"]("<!-- table: nothing -->\n<!-- end -->")


def test_filling_twice_is_filling_once():
    once = TABLES["fill"]("<!-- table: demo -->\n<!-- end -->")
    assert TABLES["fill"](once) == once


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda page: page.stem)
def test_links_between_files_lead_somewhere(page):
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [path for path in targets if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", sorted(set(CODE.findall(PAPER))))
def test_the_paper_is_mapped_to_code_that_exists(name):
    assert name in STATE or pydoc.locate(f"diffprune.{name}") is not None

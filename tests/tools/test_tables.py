"""Tables of the pages come from records; pictures and pages follow them."""

import importlib.util

import pytest
from rich.table import Table

from tools import demo_figure, tables
from tools.tables import ROOT, TABLES, fill


@pytest.mark.parametrize("page", tables.pages(), ids=lambda page: page.stem)
def test_tables_of_a_page_match_the_records(page):
    text = page.read_text(encoding="utf-8")
    assert fill(text) == text, "run `python -m tools.tables`"


def test_the_picture_matches_its_record():
    drawn = demo_figure.draw(demo_figure.read(demo_figure.METRICS))
    committed = demo_figure.PICTURE.read_text(encoding="utf-8")
    assert committed == drawn, "run `python -m tools.demo_figure`"


@pytest.mark.parametrize("name", TABLES)
def test_a_table_without_records_says_which_command_makes_them(name, tmp_path):
    assert "There is no record yet; `" in TABLES[name](tmp_path)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_with_records_has_rows(name):
    assert TABLES[name](ROOT).count("|\n|") > 1 or name == "coverage"


def test_an_unknown_table_is_an_error():
    with pytest.raises(KeyError, match="nothing"):
        fill("<!-- table: nothing -->\n<!-- end -->")


def test_filling_twice_is_filling_once():
    once = fill("<!-- table: demo -->\n<!-- end -->")
    assert "| seed |" in once
    assert fill(once) == once


def test_a_table_for_a_terminal_becomes_markdown():
    table = Table("", "cost", caption="note")
    table.add_row("theirs", "2")
    table.add_row("ours", "1", style="bold")
    assert tables._markdown(table).splitlines() == [
        "|  | cost |", "| --- | --- |", "| theirs | 2 |", "| **ours** | **1** |",
        "", "note.",
    ]  # fmt: skip


def test_the_hooks_of_the_site_work_from_their_path():
    """As mkdocs loads them: by path, with nothing else prepared."""
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "tools" / "hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    assert "| seed |" in hooks.on_page_markdown("<!-- table: demo -->\n<!-- end -->")
    assert hooks.on_page_content(r"$\beta$") == "<i>β</i>"

"""Links and names on the pages lead somewhere."""

import pydoc
import re
from pathlib import Path

import pytest

import diffprune

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
PAPER = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
CODE = re.compile(r"`((?:gates|paper|[A-Z]\w+)\.[\w.]+)")
STATE = {f"Gate.{name}" for name in diffprune.Gate(2, dropout=0.1).state_dict()}


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=lambda page: page.stem)
def test_links_between_files_lead_somewhere(page):
    targets = LINK.findall(page.read_text(encoding="utf-8"))
    assert [path for path in targets if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", sorted(set(CODE.findall(PAPER))))
def test_the_paper_is_mapped_to_code_that_exists(name):
    places = (name, f"diffprune.{name}", f"diffprune.gates.{name}")
    assert name in STATE or any(pydoc.locate(place) is not None for place in places)

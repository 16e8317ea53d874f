import re
from pathlib import Path

import diffprune
from diffprune import errors

API = Path(__file__).parents[2] / "docs" / "api"


def documented():
    pages = [page.read_text(encoding="utf-8") for page in sorted(API.glob("*.md"))]
    return re.findall(r"^::: (\S+)", "\n".join(pages), re.MULTILINE)


def test_the_reference_has_every_public_name_once():
    names = [name for name in documented() if name.count(".") == 1]
    assert sorted(names) == [f"diffprune.{name}" for name in dir(diffprune)]


def test_the_reference_has_every_error_once():
    raised = [name for name, kind in vars(errors).items() if isinstance(kind, type)]
    names = [name for name in documented() if name.startswith("diffprune.errors.")]
    assert sorted(names) == sorted(f"diffprune.errors.{name}" for name in raised)

"""What mkdocs does to a page: tables, formulas, and a search that needs no network."""

import re
import sys
from pathlib import Path

# mkdocs loads this file by its path, from wherever it was started.
sys.path.insert(0, str(Path(__file__).parent.parent))

from mkdocs.structure.pages import Page

from tools.formulas import plain
from tools.tables import fill

_SHIM = re.compile(r"https://[^\"]+/iframe-worker/shim")
"""What the theme would fetch so that the search works in a page from a file."""


def on_page_markdown(markdown: str, **_context: object) -> str:
    """Fill the tables of a page from the records, before it is rendered."""
    return fill(markdown)


def on_page_content(html: str, **_context: object) -> str:
    """Set the formulas of a page, after it was rendered."""
    return plain(html)


def on_post_page(output: str, *, page: Page, **_context: object) -> str:
    """Let the search of a page from a file use a script that comes with the site."""
    up = "../" * page.url.count("/")
    return _SHIM.sub(f"{up}assets/frame-worker.js", output)

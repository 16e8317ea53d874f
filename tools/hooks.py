"""What mkdocs does to a page: tables are filled in, formulas are set."""

import sys
from pathlib import Path

# mkdocs loads this file by its path, from wherever it was started.
sys.path.insert(0, str(Path(__file__).parent.parent))

from tools.formulas import plain
from tools.tables import fill


def on_page_markdown(markdown: str, **_context: object) -> str:
    """Fill the tables of a page from the records, before it is rendered."""
    return fill(markdown)


def on_page_content(html: str, **_context: object) -> str:
    """Set the formulas of a page, after it was rendered."""
    return plain(html)

"""What mkdocs does to pages; knows no table, no record and no formula."""

from formulas import plain
from tables import fill


def on_page_markdown(markdown: str, **_context: object) -> str:
    """Fill the tables of a page from the records, before it is rendered."""
    return fill(markdown)


def on_page_content(html: str, **_context: object) -> str:
    """Set the formulas of a page, after it was rendered."""
    return plain(html)

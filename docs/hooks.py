# ruff: noqa: INP001 - loaded by mkdocs from its path, not a package
"""What mkdocs does to a page before it renders it; knows no table and no record."""

from tables import fill


def on_page_markdown(markdown: str, **_context: object) -> str:
    """Fill the tables of a page from the records."""
    return fill(markdown)

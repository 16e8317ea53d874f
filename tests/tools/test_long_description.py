"""What a package index shows has no link that leads nowhere, and loses no word."""

import re
from pathlib import Path

from tools.long_description import without_relative_links

README = Path("README.md").read_text()


def test_no_relative_link_is_left_and_every_file_is_still_named():
    shown = without_relative_links(README)
    links = re.findall(r"\]\(([^)]*)\)", shown)
    assert links
    assert all(link.startswith("https://") for link in links)
    relative = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", README)
    assert relative
    assert all(f"`{name}`" in shown for name in relative)
    assert all(Path(name).exists() for name in relative)


def test_code_stays_as_it_is():
    code = "```python\nmodel[0](x)\n```"
    assert without_relative_links(code).startswith(code)

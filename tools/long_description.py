"""README for a package index, where links into the repository would lead nowhere.

The build calls this. A link to a file becomes its text and the name of the file, which
the source distribution holds.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_CODE = r"(?s:```.*?```)|`[^`]*`"
_LINK = re.compile(
    rf"(?P<code>{_CODE})|(!?)\[([^\]]+)\]\((?!https?:|mailto:|#)([^)\s]+)\)"
)
_NOTE = "\n\nFiles that are named here are in the source distribution.\n"


class LongDescription(MetadataHookInterface):
    """Fills in `readme`, which `pyproject.toml` calls dynamic."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Take README, without links into the repository."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": without_relative_links(text),
        }


def without_relative_links(text: str) -> str:
    r"""Name files instead of linking to them.

    Examples:
        >>> print(without_relative_links("See [the\nguide](docs/a.md#b).").strip())
        See the
        guide (`docs/a.md`).
        <BLANKLINE>
        Files that are named here are in the source distribution.
    """
    return _LINK.sub(_named, text).rstrip() + _NOTE


def _named(link: re.Match[str]) -> str:
    code, is_picture, words, target = link.groups()
    if code is not None:
        return code
    file = target.partition("#")[0]
    if words.strip("`") == file:
        return f"`{file}`"
    return f"*{words}: `{file}`*" if is_picture else f"{words} (`{file}`)"

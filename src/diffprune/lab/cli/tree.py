"""Dotted names as a tree of lines; knows nothing of what they name."""

from collections.abc import Iterable
from itertools import chain, repeat
from typing import Any


def outline(names: Iterable[str]) -> list[tuple[str, str | None]]:
    """One line per name, under lines for what they have in common.

    Returns:
        Pairs of a line and the name it stands for; None for a line between.

    Examples:
        >>> for line, name in outline(["stem", "body.0.conv", "body.0.norm"]):
        ...     print(f"{line:10} {name}")
        stem       stem
        body.0     None
        ├─ conv    body.0.conv
        └─ norm    body.0.norm
    """
    root: dict[str, Any] = {}
    for name in names:
        branch = root
        for part in name.split("."):
            branch = branch.setdefault(part, {})
        branch[""] = name
    return [line for part, below in root.items() for line in _block(part, below)]


def _block(label: str, branch: dict[str, Any]) -> list[tuple[str, str | None]]:
    """A branch as if it stood alone, with its twigs below it."""
    while len(branch) == 1 and "" not in branch:
        ((part, branch),) = branch.items()
        label = f"{label}.{part}"
    lines: list[tuple[str, str | None]] = [(label, branch.get(""))]
    blocks = [_block(part, below) for part, below in branch.items() if part]
    for block in blocks:
        first, rest = ("└─ ", "   ") if block is blocks[-1] else ("├─ ", "│  ")
        indents = chain([first], repeat(rest))
        lines += [(f"{next(indents)}{line}", name) for line, name in block]
    return lines

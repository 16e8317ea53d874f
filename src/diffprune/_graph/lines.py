"""Which line of the user's code made an op.

torch can note the whole stack of calls as text on every node of a trace, which takes a
good part of its time. One line of it is shown, so one place is noted here.
"""

import linecache
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Final

import torch
from torch import fx, nn

from diffprune._core.user_warnings import folder_of

_PLACE: Final = "diffprune_place"
_NOT_USERS: Final = (folder_of(torch.__file__), folder_of(__file__))
_LAYERS: Final = folder_of(nn.__file__)


def note_line_(nodes: Iterable[fx.Node], until: str) -> None:
    """Note on nodes the line of a `forward` that is running, the innermost of a user.

    Args:
        nodes: What the line has made.
        until: The file whose frame is around the user's code.
    """
    place = _innermost(until)
    for node in nodes:
        node.meta.setdefault("custom", {})[_PLACE] = place


def line_of(node: fx.Node) -> str:
    """The line that made a node, as `file.py:12: code`; nothing if it is unknown."""
    place = node.meta.get("custom", {}).get(_PLACE)
    if place is None:
        return ""
    return as_text(*place)


def line_of_failure(error: Exception) -> str:
    """The innermost line outside of torch that an error came through, in that form."""
    frames = traceback.walk_tb(error.__traceback__)
    places = [(frame.f_code.co_filename, line) for frame, line in frames]
    users = [
        place
        for place in places
        if not place[0].startswith(_NOT_USERS) and linecache.getline(*place).strip()
    ]
    return as_text(*users[-1]) if users else ""


def as_text(path: str, number: int) -> str:
    """A line of a file, as `file.py:12: code`."""
    return f"{Path(path).name}:{number}: {linecache.getline(path, number).strip()}"


def _innermost(until: str) -> tuple[str, int] | None:
    """The innermost `forward` outside of torch; failing that, of torch's layers."""
    frame: FrameType | None = sys._getframe(3)  # noqa: SLF001 - its only name
    place = None
    while frame is not None and frame.f_code.co_filename != until:
        if frame.f_code.co_name == "forward":
            path = frame.f_code.co_filename
            if not path.startswith(_NOT_USERS):
                return path, frame.f_lineno
            if path.startswith(_LAYERS):
                place = place or (path, frame.f_lineno)
        frame = frame.f_back
    return place

"""Warnings that name a line of the user's code, however deep within ours they arise."""

import contextlib
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Final

import torch

_OURS: Final = Path(__file__).parents[1]
_NOT_USERS: Final = (
    str(_OURS), str(Path(torch.__file__).parent), contextlib.__file__
)  # fmt: skip
_WORKBENCH: Final = str(_OURS / "lab")


def warn(message: str) -> None:
    """Warn of something, at the innermost line that is neither ours nor torch's.

    The workbench counts as a user.
    """
    # From Python 3.12 on, `skip_file_prefixes` does most of this.
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - its only name
    level = 1
    while frame is not None and _is_passed_over(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)


def _is_passed_over(path: str) -> bool:
    return path.startswith(_NOT_USERS) and not path.startswith(_WORKBENCH)

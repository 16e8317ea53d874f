"""Warnings that name a line of the user's code, however deep within ours they arise."""

import contextlib
import os
import sys
import warnings
from pathlib import Path
from types import FrameType
from typing import Final

import torch


def folder_of(file: str) -> str:
    """How paths of all that is in the folder of a file begin.

    Examples:
        >>> "/packages/torchvision/ops.py".startswith(folder_of("/packages/torch/a.py"))
        False
    """
    return f"{Path(file).parent}{os.sep}"


_OURS: Final = folder_of(str(Path(__file__).parent))
_NOT_USERS: Final = (_OURS, folder_of(torch.__file__), contextlib.__file__)
_WORKBENCH: Final = folder_of(f"{_OURS}lab/__init__.py")


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

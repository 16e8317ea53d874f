"""Code that `torch.compile` made for shapes that a removal has ended.

torch keeps what it compiled for every shape, and gives up after eight of them. Shapes
before a removal never come back, so what was compiled for them can go.
"""

from typing import Final

import torch

_COMPILED: Final = set[str]()
"""Holds something once a gated model was compiled."""


@torch.compiler.assume_constant_result
def note_compiling() -> bool:
    """Note that a gated model is being compiled; what is compiled does not call it."""
    _COMPILED.add("a gated model")
    return True


def forget_compiled_code() -> None:
    """Drop what was compiled, if a gated model was: torch drops all of it, or none."""
    if _COMPILED:
        _COMPILED.clear()
        torch.compiler.reset()

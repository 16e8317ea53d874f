"""Whose code an error comes from: the user's own, or not; handles none."""

import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

_OURS = Path(__file__).resolve().parents[1]
_PYTHONS = tuple(Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib"))


def own_part(error: BaseException) -> TracebackType | None:
    """A traceback from where the user's own code begins; None if it was not there."""
    return next((tb for tb in _frames(error) if _is_users(tb)), None)


def _frames(error: BaseException) -> Iterator[TracebackType]:
    frame = error.__traceback__
    while frame is not None:
        yield frame
        frame = frame.tb_next


def _is_users(frame: TracebackType) -> bool:
    file = Path(frame.tb_frame.f_code.co_filename)
    others = (_OURS, *_PYTHONS)
    return file.is_file() and not any(file.is_relative_to(place) for place in others)

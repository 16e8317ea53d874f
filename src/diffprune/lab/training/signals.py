"""Note Ctrl-C instead of obeying it, until it does no harm."""

import signal
import threading
from types import FrameType
from typing import Any, final

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@final
class Interruption:
    """Notes the first Ctrl-C (or `kill`) instead of obeying it; the second is obeyed.

    In the middle of an optimizer step half the parameters are new and half are old:
    nothing that should be saved. Use it as a context manager. Python lets only the main
    thread listen to signals; in any other thread none is noted.
    """

    def __init__(self) -> None:
        self.is_requested = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in _SIGNALS}
            for number in _SIGNALS:
                signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.is_requested = True
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

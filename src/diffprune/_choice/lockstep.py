"""Run functions that can be paused in the middle, from the outside, like generators.

A forward pass cannot be written as a generator: the place to pause is deep inside it.
So each runs in a thread of its own; only one of them moves at a time, and what happens
is as deterministic as in one thread.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar, final

EventT = TypeVar("EventT")


class _Closed(BaseException):
    """Thrown into a paused run that nobody will resume."""


@final
class Pausable(Iterator[EventT], Generic[EventT]):
    """A function that pauses: an iterator over what it pauses with.

    Args:
        run: Gets a function `pause(event)` to call wherever it may pause.

    Examples:
        >>> def run(pause):
        ...     pause("one")
        ...     pause("two")
        >>> list(Pausable(run))
        ['one', 'two']
    """

    def __init__(self, run: Callable[[Callable[[EventT], None]], object]) -> None:
        self._run = run
        self._resume, self._paused = threading.Lock(), threading.Lock()
        self._resume.acquire()
        self._paused.acquire()
        self._event: EventT | None = None
        self._error: BaseException | None = None
        self._is_done = self._is_closing = False
        self._thread = threading.Thread(target=self._body, daemon=True)
        self._thread.start()

    def __next__(self) -> EventT:
        if self._is_done:
            raise StopIteration
        self._event = None
        self._resume.release()
        self._paused.acquire()
        if self._error is not None:
            raise self._error
        if self._is_done or self._event is None:
            raise StopIteration
        return self._event

    def close(self) -> None:
        """Give up a paused run."""
        if not self._is_done:
            self._is_closing = True
            self._resume.release()
        self._thread.join()

    def _body(self) -> None:
        self._resume.acquire()
        try:
            if not self._is_closing:
                self._run(self._pause)
        except _Closed:
            pass
        except BaseException as error:  # noqa: BLE001 - raised where the run is resumed
            self._error = error
        finally:
            self._is_done = True
            self._paused.release()

    def _pause(self, event: EventT) -> None:
        self._event = event
        self._paused.release()
        self._resume.acquire()
        if self._is_closing:
            raise _Closed

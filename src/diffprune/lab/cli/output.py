"""How every command speaks and ends: results, messages, errors, exit codes, examples.

Results go to stdout; everything else goes to stderr, and so does what the user's own
code prints.
"""

import json
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TextIO, TypeVar

import typer
from rich.console import Console, RenderableType

from diffprune.errors import DiffpruneError

_NO_EDGE: Final = 10_000
FAILED: Final = 1
INTERRUPTED: Final = 130
EXIT_CODES: Final = (
    "Exit codes: 0 done; 1 it could not be done, and stderr says why; "
    "2 the command was misspelt; 130 interrupted."
)
_OURS: Final = Path(__file__).resolve().parents[2]
_PYTHONS: Final = tuple(
    Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib")
)
_RESULTS: Final = ContextVar[TextIO | None]("results", default=None)
"""Where results go while the user's own code cannot print there."""

CommandT = TypeVar("CommandT", bound=Callable[..., None])


def examples(*lines: str) -> str:
    """The end of a help text, one example per line."""
    return "\n\n".join(["Examples:", *(f"- `{line}`" for line in lines)])


def with_examples(*lines: str) -> Callable[[CommandT], CommandT]:
    """Give a command the examples that end its help."""

    def decorate(command: CommandT) -> CommandT:
        command.__dict__["epilog"] = examples(*lines)
        return command

    return decorate


def epilog(command: Callable[..., None]) -> str:
    """What `with_examples` gave a command."""
    return command.__dict__["epilog"]


def screen() -> Console:
    """Where progress and news go."""
    return Console(stderr=True)


def say(text: str) -> None:
    """Tell a person; not part of the result."""
    screen().print(text, markup=False, highlight=False, soft_wrap=True)


def show(*results: RenderableType) -> None:
    """Print results for a person."""
    # Cells are text of other people's models: `model.py:100:` is no emoji.
    console = Console(file=_RESULTS.get(), markup=False, emoji=False, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        # A file or a pipe has no edge, and a number that is cut is no number.
        unbounded = console.options.update(max_width=_NO_EDGE)
        needed = (console.measure(one, options=unbounded).maximum for one in results)
        console.width = max(console.width, *needed)
    with _written_plainly():
        console.print(*results, sep="\n")


def show_json(result: Any) -> None:  # noqa: ANN401 - whatever JSON can hold
    """Print the result for a program."""
    with _written_plainly():
        typer.echo(json.dumps(result, indent=2), file=_RESULTS.get())


@contextmanager
def _written_plainly() -> Generator[None]:
    """Write results to where they go, or say why that cannot be."""
    stream = _RESULTS.get() or sys.stdout
    if isinstance(stream, TextIOWrapper):
        # `LANG=C` has no letters beyond ASCII, and folders may have.
        stream.reconfigure(errors="backslashreplace")
    try:
        yield
        if stream is not None:
            stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        say(f"Error: the result cannot be written: {error.strerror or error}.")
        if stream is not None:  # Python tries again when it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        raise typer.Exit(FAILED) from error


@contextmanager
def said_plainly() -> Generator[None, None, None]:
    """Turn what diffprune raises on purpose into a message and an exit code.

    Of an error in the user's own code, show that code, and not how one got there. What
    it prints is no result.
    """
    try:
        with _stdout_for_results():
            yield
    except DiffpruneError as error:
        cause = error.__cause__
        if cause is not None and (own := own_part(cause)) is not None:
            _say_traceback(cause, own)
        say(f"Error: {error}")
        raise typer.Exit(FAILED) from error
    except typer.Exit:
        raise
    except Exception as error:
        own = own_part(error)
        if own is None and isinstance(error, OSError):
            say(f"Error: {error}")
            raise typer.Exit(FAILED) from error
        if own is None:
            raise
        _say_traceback(error, own)
        raise typer.Exit(FAILED) from error


def _say_traceback(error: BaseException, own: TracebackType) -> None:
    say("".join(traceback.format_exception(type(error), error, own)).rstrip())


@contextmanager
def _stdout_for_results() -> Generator[None, None, None]:
    outer = _RESULTS.set(_RESULTS.get() or sys.stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _RESULTS.reset(outer)


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

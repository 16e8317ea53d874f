"""What every command says and how it ends; knows none of them.

Results go to stdout, everything else to stderr.
"""

import json
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

import typer
from rich.console import Console, RenderableType

from diffprune.errors import DiffpruneError
from diffprune.lab.cli.user_traceback import own_part

FAILED: Final = 1
INTERRUPTED: Final = 130
EXIT_CODES: Final = (
    "Exit codes: 0 done; 1 it could not be done, and stderr says why; "
    "2 the command was misspelt; 130 interrupted."
)


def examples(*lines: str) -> str:
    """The end of a help text, one example per line."""
    return "\n\n".join(["Examples:", *(f"- `{line}`" for line in lines)])


def screen() -> Console:
    """Where progress and news go."""
    return Console(stderr=True)


def say(text: str) -> None:
    """Tell a person; not part of the result."""
    screen().print(text, markup=False, highlight=False, soft_wrap=True)


def show(*results: RenderableType) -> None:
    """Print results for a person."""
    # Cells are text of other people's models: `model.py:100:` is no emoji.
    console = Console(markup=False, emoji=False, highlight=False)
    console.print(*results, sep="\n")


def show_json(result: Any) -> None:  # noqa: ANN401 - whatever JSON can hold
    """Print the result for a program."""
    typer.echo(json.dumps(result, indent=2))


@contextmanager
def said_plainly() -> Generator[None, None, None]:
    """Turn what diffprune raises on purpose into a message and an exit code.

    Of an error in the user's own code, show that code, and not how one got there.
    """
    try:
        yield
    except DiffpruneError as error:
        say(f"Error: {error}")
        raise typer.Exit(FAILED) from error
    except typer.Exit:
        raise
    except Exception as error:
        own = own_part(error)
        if own is None:
            raise
        say("".join(traceback.format_exception(type(error), error, own)).rstrip())
        raise typer.Exit(FAILED) from error

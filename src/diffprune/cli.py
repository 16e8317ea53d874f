"""The command line: arguments in, messages out; the work is done elsewhere.

Importing torch takes seconds, so commands import what they run, and `--help` does not.
"""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console

from diffprune.errors import DiffpruneError

app = typer.Typer(
    add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer passes it so
    if wanted:
        typer.echo(f"diffprune {version('diffprune')}")
        raise typer.Exit


@app.callback(epilog="Try it:  diffprune demo --seed 1")
def main(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Show the version.",
        ),
    ] = False,
) -> None:
    """Neural networks that get smaller while they train."""


@app.command(epilog="For scripts:  diffprune demo --json 2>/dev/null | jq .pruned.macs")
def demo(
    *,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal results.")] = 0,
    epochs: Annotated[int, typer.Option(help="Passes over the training digits.")] = 20,
    out: Annotated[
        Path, typer.Option(help="Directory for the results; earlier ones are replaced.")
    ] = Path("runs/demo"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the summary as JSON and no table.")
    ] = False,
) -> None:
    """Train LeNet-5 on handwritten digits, dense and gated, and compare the two.

    Takes less than a minute on two cores and downloads nothing.
    """
    screen = Console(stderr=True)
    screen.print(
        "LeNet-5 on handwritten digits: first dense, then with gates that close."
    )
    from diffprune.demo import run, training, view  # noqa: PLC0415 - imports torch

    try:
        with view.progress_bars(screen, epochs=epochs) as on_epoch:
            recipe = training.Recipe(epochs=epochs)
            summary = run.run_demo(out, seed=seed, recipe=recipe, on_epoch=on_epoch)
    except DiffpruneError as error:
        _fail(error)
    if as_json:
        typer.echo(json.dumps(summary.to_dict(), indent=2))
        return
    console = Console()
    console.print(view.comparison(summary))
    console.print(view.whereabouts(summary), markup=False)


def _fail(error: DiffpruneError) -> NoReturn:
    # Not as markup: `pip install 'diffprune[demo]'` has brackets of its own.
    Console(stderr=True).print(f"Error: {error}", markup=False, soft_wrap=True)
    raise typer.Exit(code=1)

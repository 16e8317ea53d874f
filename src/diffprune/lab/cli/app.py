"""The `diffprune` program: all commands, each written in a file of its own."""

from typing import Annotated

import typer

from diffprune.lab.cli.bench_command import bench
from diffprune.lab.cli.compare_command import compare
from diffprune.lab.cli.demo_command import demo
from diffprune.lab.cli.export_command import export
from diffprune.lab.cli.inspect_command import inspect
from diffprune.lab.cli.output import EXIT_CODES, epilog, examples
from diffprune.lab.cli.report_command import report
from diffprune.lab.cli.shrink_command import shrink
from diffprune.lab.cli.sweep_command import sweep
from diffprune.lab.cli.train_command import train

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer passes it so
    if wanted:
        from diffprune import __version__  # noqa: PLC0415 - slower than the rest

        typer.echo(f"diffprune {__version__}")
        raise typer.Exit


@app.callback(epilog=f"{examples('diffprune demo')}\n\n{EXIT_CODES}")
def main(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            callback=_print_version,
            is_eager=True,
            help="Show the version.",
        ),
    ] = False,
) -> None:
    """Neural networks that get smaller while they train."""


for _command in (demo, inspect, train, shrink, sweep, compare, bench, export, report):
    app.command(epilog=epilog(_command))(_command)

"""All commands in one program; each is written in its own file."""

from typing import Annotated

import typer

from diffprune.lab.cli.bench_command import EXAMPLES as BENCH, bench
from diffprune.lab.cli.compare_command import EXAMPLES as COMPARE, compare
from diffprune.lab.cli.demo_command import EXAMPLES as DEMO, demo
from diffprune.lab.cli.export_command import EXAMPLES as EXPORT, export
from diffprune.lab.cli.inspect_command import EXAMPLES as INSPECT, inspect
from diffprune.lab.cli.output import EXIT_CODES, examples
from diffprune.lab.cli.report_command import EXAMPLES as REPORT, report
from diffprune.lab.cli.sweep_command import EXAMPLES as SWEEP, sweep
from diffprune.lab.cli.train_command import EXAMPLES as TRAIN, train
from paper.reproduce_command import EXAMPLES as REPRODUCE, reproduce

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer passes it so
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - slower than the rest

        typer.echo(f"diffprune {version('diffprune')}")
        raise typer.Exit


@app.callback(epilog=f"{examples('diffprune demo')}\n\n{EXIT_CODES}")
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


app.command(epilog=DEMO)(demo)
app.command(epilog=INSPECT)(inspect)
app.command(epilog=TRAIN)(train)
app.command(epilog=SWEEP)(sweep)
app.command(epilog=COMPARE)(compare)
app.command(epilog=BENCH)(bench)
app.command(epilog=EXPORT)(export)
app.command(epilog=REPORT)(report)
app.command(epilog=REPRODUCE)(reproduce)

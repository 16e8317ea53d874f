"""The command line: arguments in, messages out; the work is done elsewhere.

Importing torch takes seconds, so commands import what they run, and `--help` does not.
"""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console

from diffprune.errors import DiffpruneError, UnknownNameError

if TYPE_CHECKING:
    from diffprune.experiment import Recipe
    from diffprune.experiment.task import MakeTask

DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder of the data; else it is fetched into the cache."),
]

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
    from diffprune.demo import run, view  # noqa: PLC0415 - imports torch
    from diffprune.experiment.view import progress_bars  # noqa: PLC0415

    bars = progress_bars(screen, ["dense", "pruned"], epochs=epochs)
    with _said_plainly(), bars as on_epoch:
        summary = run.run_demo(out, seed=seed, epochs=epochs, on_epoch=on_epoch)
    if as_json:
        typer.echo(json.dumps(summary.to_dict(), indent=2))
        return
    console = Console()
    console.print(view.comparison(summary))
    console.print(view.proof(summary), markup=False)
    console.print(view.whereabouts(summary), markup=False)


@app.command(epilog="Your own:  diffprune train mine.py:my_task --epochs 20")
def train(  # noqa: PLR0913 - options of a command
    task: Annotated[
        str,
        typer.Argument(help="`lenet5-mnist`, `lenet5-digits`, or `file.py:function`."),
    ],
    *,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples per step.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    strength: Annotated[
        float | None, typer.Option(help="How hard open units are pushed to close.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal results.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; by default in `runs`.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where to train.")] = "cpu",
    data_dir: DataDir = None,
) -> None:
    """Train a model while it shrinks; interrupted, the same command continues.

    A task is a function from a recipe to a `diffprune.experiment.Task`.
    """
    from diffprune.experiment.load import load_task  # noqa: PLC0415 - imports torch
    from diffprune.experiment.reproduce import folder_name  # noqa: PLC0415

    asked = {
        "epochs": epochs, "batch_size": batch_size, "lr": lr, "strength": strength
    }  # fmt: skip
    _use_data_dir(data_dir)
    with _said_plainly():
        make_task, make_recipe = load_task(task)
        given = {name: value for name, value in asked.items() if value is not None}
        recipe = replace(make_recipe(seed), **given)
        folder = out or Path("runs") / folder_name(recipe)
        _train(make_task, recipe, folder, device)


@app.command(epilog="Anew:  diffprune reproduce lenet5 --run --seeds 3")
def reproduce(
    experiment: Annotated[str, typer.Argument(help="`lenet5`: Table 1 of the paper.")],
    *,
    run: Annotated[bool, typer.Option("--run", help="Train first; for hours.")] = False,
    seeds: Annotated[int, typer.Option(help="With --run: seeds 0, 1, and so on.")] = 1,
    epochs: Annotated[int, typer.Option(help="With --run: fewer than 200.")] = 200,
    results: Annotated[Path, typer.Option(help="Folder of the records.")] = Path(
        "results/lenet5"
    ),
    out: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs"),
    data_dir: DataDir = None,
) -> None:
    """Print a table of the paper next to ours, from records or from new runs."""
    from diffprune.experiment import reproduce as tables  # noqa: PLC0415 - imports torch
    from diffprune.experiment.builtin import lenet5_mnist  # noqa: PLC0415

    if experiment != "lenet5":
        _fail(UnknownNameError(f"there is no `{experiment}`; type `lenet5`."))
    _use_data_dir(data_dir)
    with _said_plainly():
        chosen = [
            replace(row.recipe(seed), epochs=epochs)
            for seed in range(seeds)
            for row in reversed(tables.TABLE1)
        ]
        for recipe in chosen if run else []:
            folder = out / tables.folder_name(recipe)
            if not (folder / "summary.json").exists():
                _train(lenet5_mnist, recipe, folder, "cpu")
            tables.write_record(folder, results / folder.name)
        Console().print(tables.table1(tables.read_records(results)))


def _train(make_task: "MakeTask", recipe: "Recipe", folder: Path, device: str) -> None:
    from diffprune.experiment.records import read_run  # noqa: PLC0415 - imports torch
    from diffprune.experiment.train import train as train_  # noqa: PLC0415
    from diffprune.experiment.view import architecture, progress_bars  # noqa: PLC0415

    screen, name = Console(stderr=True), folder.name
    try:
        with progress_bars(screen, [name], epochs=recipe.epochs) as bars:
            train_(make_task, recipe, out=folder, device=device, on_epoch=bars[name])
    except KeyboardInterrupt:
        screen.print(f"Stopped; the same command continues in {folder}.", markup=False)
        raise typer.Exit(code=130) from None
    end = read_run(folder).outcome
    if end is not None:
        Console().print(
            f"{architecture(end.effective)}  {end.parameters:,} parameters  "
            f"{end.macs:,} MACs  test error {end.test_error:.2f} %\n"
            f"Written to {folder}.",
            markup=False,
            highlight=False,
        )


def _use_data_dir(data_dir: Path | None) -> None:
    if data_dir is not None:
        os.environ["DIFFPRUNE_DATA"] = str(data_dir)


@contextmanager
def _said_plainly() -> Generator[None, None, None]:
    try:
        yield
    except DiffpruneError as error:
        _fail(error)


def _fail(error: DiffpruneError) -> NoReturn:
    # Not as markup: `pip install 'diffprune[demo]'` has brackets of its own.
    Console(stderr=True).print(f"Error: {error}", markup=False, soft_wrap=True)
    raise typer.Exit(code=1)

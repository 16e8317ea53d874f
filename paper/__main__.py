"""The command line of the paper: `python -m paper --help`.

Without `--run`, every command prints what is on record and takes seconds. With it, it
trains first, keeps a record, and says where.
"""

import os
import shlex
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer
from rich.table import Table

from diffprune.errors import ArgumentError, MissingPackageError, UnknownNameError
from diffprune.lab import Run
from diffprune.lab.cli.options import AsJson, RunFolders
from diffprune.lab.cli.output import (
    INTERRUPTED,
    examples,
    said_plainly,
    say,
    show,
    show_json,
)
from diffprune.lab.cli.run_jobs import Job, result, run_job
from diffprune.lab.formatting import listed
from diffprune.lab.report import write_report
from paper import frontier as front, recipes as r
from paper.comparison import run as comparison
from paper.comparison.systems import METHODS
from paper.data.download import DATA_VARIABLE
from paper.experiments import EXPERIMENTS
from paper.measured import ABLATIONS, CALIBRATION, STEPS, Figures
from paper.published import lenet5_on_mnist
from paper.records import RESULTS, has_finished, read_records, train_and_keep
from paper.tables.comparison_table import comparison_table, read_comparison
from paper.tables.frontier_table import frontier_table, points, read_frontier

ValueT = TypeVar("ValueT")

_WITH_RUN: Final = (
    "recipes", "methods", "aim", "seeds", "epochs", "untaught", "validate", "out"
)  # fmt: skip
"""Options that say what to train."""

app: Final = typer.Typer(
    no_args_is_help=True, rich_markup_mode="markdown", pretty_exceptions_enable=False
)

DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder of MNIST and CIFAR-10; else they are fetched into the cache."
    ),
]
DoRun = Annotated[
    bool,
    typer.Option(
        "--run", metavar="", help="Train or measure first, and keep a record."
    ),
]
Seeds = Annotated[int, typer.Option(min=1, help="With --run: seeds 0, 1, and so on.")]
Epochs = Annotated[
    int | None, typer.Option(min=1, help="With --run: other than the paper's number.")
]


@app.callback(epilog=examples("python -m paper table lenet5"))
def main() -> None:
    """The paper's experiments, run again: tables, frontier, ablations, figures.

    Without `--run`, a command prints what is on record under `paper/results`.
    """


@app.command(
    epilog=examples(
        "python -m paper train lenet5-digits  # a minute",
        "python -m paper train lenet5-sigmoid --seed 1  # an hour or two",
    )
)
def train(
    name: Annotated[str, typer.Argument(help="A recipe, such as `lenet5-sigmoid`.")],
    *,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the run.")] = 0,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Other than the recipe's number.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; else one in `runs`.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Train one network of the paper; interrupted, the same command goes on.

    An unknown name prints the names that there are.
    """
    _use(data_dir)
    with _said_plainly():
        make_task, make_recipe = _named(r.TASKS, name)
        recipe = make_recipe(seed)
        recipe = replace(recipe, epochs=epochs or recipe.epochs)
        folder = out or Path("runs") / recipe.folder_name
        show(result(run_job(Job(make_task, recipe, folder))))


@app.command(
    epilog=examples(
        "python -m paper table lenet5",
        "python -m paper table wrn",
        "python -m paper table lenet5 --run --recipes lenet5-sigmoid  # an hour or two",
        "python -m paper table lenet5 --run --seeds 3  # every row; for a day",
    )
)
def table(  # noqa: PLR0913 - options of a command
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(help="`lenet5`: Table 1 of the paper; `wrn`: section 4.2.")
    ],
    *,
    run: DoRun = False,
    recipes: Annotated[
        list[str] | None,
        typer.Option(help="With --run: one row, such as `wrn-10-2-low`; or more."),
    ] = None,
    seeds: Seeds = 1,
    epochs: Epochs = None,
    results: Annotated[
        Path | None,
        typer.Option(help="Folder of the records; else `paper/results/NAME`."),
    ] = None,
    out: Annotated[Path, typer.Option(help="With --run: folder of the runs.")] = Path(
        "runs"
    ),
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Print a table of the paper next to our runs of it.

    With --run, train what is missing first: hours on a processor. Interrupted, it keeps
    a record of what there is, and the same command goes on. What is on record is not
    missing; remove a record to run it anew. As JSON, our runs alone.
    """
    _use(data_dir)
    with _said_plainly():
        chosen = _named(EXPERIMENTS, name)
        records = results or RESULTS / name
        rows = {make_recipe(0).name: (t, make_recipe) for t, make_recipe in chosen.runs}
        asked_for = [_named(rows, one) for one in recipes or rows]
        _check_has_run(context, run=run)
        for seed in range(seeds if run else 0):
            for make_task, make_recipe in asked_for:
                recipe = make_recipe(seed)
                asked = replace(recipe, epochs=epochs or recipe.epochs)
                record = records / asked.folder_name
                if not has_finished(asked, record):
                    job = Job(make_task, asked, out / asked.folder_name)
                    train_and_keep(job, record)
        runs = read_records(records, _typed(name, results))
        _show(runs, chosen.table, as_json=as_json)


@app.command(
    epilog=examples(
        "python -m paper table1",
        "python -m paper table1 --run --methods l0 --epochs 6  # minutes",
        "python -m paper table1 --run --seeds 3  # every system, as published; days",
    )
)
def table1(
    context: typer.Context,
    *,
    run: DoRun = False,
    methods: Annotated[
        list[str] | None,
        typer.Option(help="With --run: a system, such as `l0`; may be repeated."),
    ] = None,
    seeds: Seeds = 1,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="With --run: fewer than published.")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Print Table 1 with every system it compares, published and run here.

    With --run, train what is not on record. Interrupted, the same command goes on. With
    fewer epochs than published, schedules keep their shares of the run, and gates learn
    faster. As JSON, our runs alone.
    """
    _use(data_dir)
    with _said_plainly():
        for name in methods or ():
            _named(METHODS, name)
        _check_has_run(context, run=run)
        if run:
            comparison.train(methods or list(METHODS), seeds=seeds, epochs=epochs)
        _show(read_comparison(RESULTS), comparison_table, as_json=as_json)


@app.command(
    epilog=examples(
        "python -m paper frontier",
        "python -m paper frontier --run --aim small --seeds 3  # for hours",
    )
)
def frontier(
    context: typer.Context,
    *,
    run: DoRun = False,
    aim: Annotated[
        str,
        typer.Option(
            help="With --run: `small` or `medium`, how small; small with a better "
            "teacher: `plain`, `normed`, with batch norms meanwhile, or `sparse`, "
            "whose weights leave one by one."
        ),
    ] = "small",
    seeds: Seeds = 1,
    untaught: Annotated[
        bool, typer.Option(help="With --run: train once more without a teacher, too.")
    ] = False,
    validate: Annotated[
        bool,
        typer.Option(
            help="With --run: on 55,000 images, to choose on the other 5,000."
        ),
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Print how small LeNet-5 can be on MNIST and how wrong, beside what is published.

    With --run, train dense, pruned and pruned again first: hours on a processor. Seeds
    that are on record are not missing.
    """
    _use(data_dir)
    with _said_plainly():
        _named(front.AIMS, aim)
        _check_has_run(context, run=run)
        if run and validate:
            front.validate(aim)
            say(f"Runs written to {front.RUNS / 'validated'}.")
        for seed in range(seeds if run and not validate else 0):
            front.train(aim, seed, untaught=untaught)
        show(frontier_table(points(read_frontier())))


@app.command(
    epilog=examples(
        "python -m paper ablation sigma",
        "python -m paper ablation live_removal --run  # some minutes",
    )
)
def ablation(
    name: Annotated[
        str, typer.Argument(help="`sigma`, `fading`, `zeta` or `live_removal`.")
    ],
    *,
    run: DoRun = False,
) -> None:
    """Print what a choice that the paper leaves open is worth, on small runs."""
    with _said_plainly():
        figures = _named(ABLATIONS, name)
    _figures(figures, run=run)


@app.command(
    epilog=examples(
        "python -m paper calibrate",
        "python -m paper calibrate --run  # ten minutes or so",
    )
)
def calibrate(*, run: DoRun = False, data_dir: DataDir = None) -> None:
    """Print how strengths of WRN-10-2 were found, on held-out images.

    The paper's own are for a network a hundred times as large and for 200 epochs. One
    factor on them is looked for, so that runs end near the paper's multiply-adds.
    """
    _use(data_dir)
    _figures(CALIBRATION, run=run)


@app.command(
    epilog=examples(
        "python -m paper steps wrn-28-10",
        "python -m paper steps wrn-10-2 --run  # minutes",
    )
)
def steps(
    name: Annotated[
        str,
        typer.Argument(
            help="`wrn-28-10`: at the widths the paper prints; `wrn-10-2`, `wrn-10-1`: "
            "after the epochs of small runs."
        ),
    ],
    *,
    run: DoRun = False,
) -> None:
    """Print what a training step of a wide ResNet takes as it gets narrower."""
    with _said_plainly():
        figures = _named(STEPS, name)
    _figures(figures, run=run)


@app.command(epilog=examples("python -m paper figures"))
def figures(
    *,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the figures; else `docs/assets`.")
    ] = None,
) -> None:
    """Draw the figures of the documentation from the records, as SVG files."""
    with _said_plainly():
        for package in ("altair", "vl_convert"):
            if find_spec(package) is None:
                raise MissingPackageError(
                    f"figures are drawn with {package}, which is not installed.\n"
                    "Install it with `pip install 'diffprune[report]'`."
                )
        from paper.figures import PICTURES, charts, save  # noqa: PLC0415 - needs altair

        folder = out or PICTURES
        for name, chart in charts().items():
            save(chart, folder / name)
            show(f"Written to {folder / name}.")


@app.command(
    epilog=examples("python -m paper report runs/lenet5-sigmoid-seed0 --no-measure")
)
def report(
    runs: RunFolders,
    *,
    out: Annotated[Path, typer.Option(help="The HTML file.")] = Path("report.html"),
    measure: Annotated[
        bool, typer.Option(help="Rebuild the networks and time them here.")
    ] = True,
) -> None:
    """Write runs of LeNet-5 on MNIST as a page, beside all that is published on it."""
    references = [published.reference() for published in lenet5_on_mnist()]
    with _said_plainly():
        path = write_report(runs, out, references=references, measure=measure)
    show(f"Written to {path}; open it in a browser.")


def _show(
    runs: Sequence[Run], make_table: Callable[[Sequence[Run]], Table], *, as_json: bool
) -> None:
    """Print runs as a table, or as JSON."""
    if as_json:
        show_json([run.to_dict() for run in runs])
    else:
        show(make_table(runs))


def _typed(name: str, results: Path | None) -> str:
    """What to type to make the records of a table."""
    where = "" if results is None else f" --results {shlex.quote(str(results))}"
    return f"python -m paper table {name} --run{where}"


def _figures(figures: Figures, *, run: bool) -> None:
    """Print figures from their record, measured first if asked to."""
    with _said_plainly(again="starts anew"):
        if run:
            say(f"Record written to {figures.write(RESULTS)}.")
        show(figures.table(RESULTS))


def _check_has_run(context: typer.Context, *, run: bool) -> None:
    """Refuse what says how to train where nothing is trained."""
    for name in () if run else _WITH_RUN:
        if name in context.params and _is_typed(context, name):
            raise ArgumentError(
                f"`--{name}` says what to train, and a record is printed as it is.\n"
                f"Add `--run` to train, or leave `--{name}` out."
            )


def _is_typed(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


@contextmanager
def _said_plainly(again: str = "goes on from here") -> Generator[None, None, None]:
    """Turn what is raised on purpose into a message, and Ctrl-C as well.

    Args:
        again: What the same command does next time.
    """
    try:
        with said_plainly():
            yield
    except KeyboardInterrupt:
        say(f"Stopped; the same command {again}.")
        raise typer.Exit(INTERRUPTED) from None


def _named(known: Mapping[str, ValueT], name: str) -> ValueT:
    """Look a name up, or say which there are."""
    if name not in known:
        raise UnknownNameError(f"there is no `{name}`; there are {listed(known)}.")
    return known[name]


def _use(data_dir: Path | None) -> None:
    """Let every task of this process look for its data there."""
    if data_dir is not None:
        os.environ[DATA_VARIABLE] = str(data_dir)


if __name__ == "__main__":
    app(prog_name="python -m paper")

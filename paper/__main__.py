"""The command line of the paper: `python -m paper --help`.

Without `--run`, every command prints what is on record and takes seconds. With it, it
trains first, keeps a record, and says where.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer

from diffprune.errors import UnknownNameError
from diffprune.lab.cli.options import AsJson, RunFolders
from diffprune.lab.cli.output import examples, said_plainly, say, show, show_json
from diffprune.lab.cli.run_jobs import Job, result, run_job
from diffprune.lab.formatting import listed
from diffprune.lab.report import write_report
from paper import calibration, frontier as front, recipes as r, step_times as times
from paper.ablations import fading, live_removal, sigma, zeta
from paper.comparison import run as comparison
from paper.comparison.systems import METHODS
from paper.data.download import DATA_VARIABLE
from paper.experiments import EXPERIMENTS
from paper.published import lenet5_on_mnist
from paper.records import (
    RESULTS,
    is_on_record,
    read_figures,
    read_records,
    train_and_keep,
    write_figures,
)
from paper.tables.comparison_table import comparison_table, read_comparison
from paper.tables.wide_resnet_table import NETWORKS, SmallNetwork

ValueT = TypeVar("ValueT")

app: Final = typer.Typer(
    no_args_is_help=True, rich_markup_mode="markdown", pretty_exceptions_enable=False
)

ABLATIONS: Final = {
    "sigma": sigma,
    "fading": fading,
    "zeta": zeta,
    "live_removal": live_removal,
}
STEPS: Final = {
    "wrn-28-10": "wrn/step.json",
    "wrn-10-2": "wrn/epochs.json",
    "wrn-10-1": "wrn-10-1/epochs.json",
}


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
    with said_plainly():
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
    with said_plainly():
        chosen = _named(EXPERIMENTS, name)
        records = results or RESULTS / name
        rows = {make_recipe(0).name: (t, make_recipe) for t, make_recipe in chosen.runs}
        asked_for = [_named(rows, one) for one in recipes or rows]
        for seed in range(seeds if run else 0):
            for make_task, make_recipe in asked_for:
                recipe = make_recipe(seed)
                asked = replace(recipe, epochs=epochs or recipe.epochs)
                record = records / asked.folder_name
                if not is_on_record(asked, record):
                    job = Job(make_task, asked, out / asked.folder_name)
                    train_and_keep(job, record)
        runs = read_records(records)
    if as_json:
        show_json([run.to_dict() for run in runs])
    else:
        show(chosen.table(runs))


@app.command(
    epilog=examples(
        "python -m paper table1",
        "python -m paper table1 --run --methods l0 --epochs 6  # minutes",
        "python -m paper table1 --run --seeds 3  # every system, as published; days",
    )
)
def table1(
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
    with said_plainly():
        for name in methods or ():
            _named(METHODS, name)
        if run:
            comparison.train(methods or list(METHODS), seeds=seeds, epochs=epochs)
        runs = read_comparison(RESULTS)
    if as_json:
        show_json([run.to_dict() for run in runs])
    else:
        show(comparison_table(runs))


@app.command(
    epilog=examples(
        "python -m paper frontier",
        "python -m paper frontier --run --aim small --seeds 3  # for hours",
    )
)
def frontier(
    *,
    run: DoRun = False,
    aim: Annotated[
        str,
        typer.Option(
            help="With --run: `small` or `medium`, how small; small with a better "
            "teacher: `plain`, or `normed`, with batch norms meanwhile."
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
    with said_plainly():
        _named(front.AIMS, aim)
        if run and validate:
            front.validate(aim)
            say(f"Runs written to {front.RUNS / 'validated'}.")
        for seed in range(seeds if run and not validate else 0):
            front.train(aim, seed, untaught=untaught)
        show(front.table(front.points(read_records(front.RECORDS))))


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
    with said_plainly():
        module = _named(ABLATIONS, name)
        found = _figures(
            f"{name}.json",
            f"ablation {name}",
            lambda: {"results": [vars(result) for result in module.measure()]},
            run=run,
        )
        show(module.table([module.Result(**row) for row in found["results"]]))


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
    with said_plainly():
        found = _figures(
            "wrn/calibration.json",
            "calibrate",
            lambda: {"results": [vars(one) for one in calibration.measure()]},
            run=run,
        )
        trials = [calibration.Result(**row) for row in found["results"]]
        show(calibration.table(trials))


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
    with said_plainly():
        file = _named(STEPS, name)
        small = NETWORKS.get(name)
        measure = times.measure_paper if small is None else _timed(small, file)
        found = _figures(file, f"steps {name}", measure, run=run)["results"]
        if small is None:
            show(times.paper_table([times.Timing(**row) for row in found]))
        else:
            show(times.epochs_table([times.EpochTiming(**row) for row in found]))


def _timed(small: SmallNetwork, file: str) -> Callable[[], dict[str, Any]]:
    return lambda: times.measure_epochs(small, read_records((RESULTS / file).parent))


@app.command(epilog=examples("python -m paper figures"))
def figures(
    *,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the figures; else `docs/assets`.")
    ] = None,
) -> None:
    """Draw the figures of the documentation from the records, as SVG files."""
    from paper.figures import PICTURES, charts, save  # noqa: PLC0415 - needs altair

    folder = out or PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    with said_plainly():
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
    with said_plainly():
        path = write_report(runs, out, references=references, measure=measure)
    show(f"Written to {path}; open it in a browser.")


def _figures(
    file: str, command: str, measure: Callable[[], dict[str, Any]], *, run: bool
) -> Mapping[str, Any]:
    """Figures from a record, measured first if asked to."""
    path, typed = RESULTS / file, f"python -m paper {command} --run"
    if run:
        write_figures(path, typed, **measure())
        say(f"Record written to {path}.")
    return read_figures(path, typed)


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

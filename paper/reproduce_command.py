"""`diffprune reproduce`: tables of the paper next to ours; they are made elsewhere."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from diffprune.lab.cli.options import AsJson, DataDir
from diffprune.lab.cli.output import examples, said_plainly, show, show_json

EXAMPLES: Final = examples(
    "diffprune reproduce lenet5",
    "diffprune reproduce wrn",
    "diffprune reproduce lenet5 --run --seeds 3  # anew; for hours",
)


def reproduce(
    experiment: Annotated[
        str, typer.Argument(help="`lenet5`: Table 1 of the paper; `wrn`: section 4.2.")
    ],
    *,
    run: Annotated[bool, typer.Option("--run", help="Train first; for hours.")] = False,
    seeds: Annotated[int, typer.Option(help="With --run: seeds 0, 1, and so on.")] = 1,
    epochs: Annotated[
        int | None, typer.Option(help="With --run: other than the usual number.")
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(help="Folder of the records; by default in `results`."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs"),
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Print a table of the paper next to ours, from records or from new runs.

    As JSON, our runs alone, one after the other.
    """
    from diffprune.errors import UnknownNameError  # noqa: PLC0415
    from diffprune.lab.cli import run_jobs as runs  # noqa: PLC0415 - imports torch
    from diffprune.lab.formatting import listed  # noqa: PLC0415
    from paper import reproduce as paper  # noqa: PLC0415
    from paper.data.download import DATA_VARIABLE  # noqa: PLC0415

    if data_dir is not None:
        os.environ[DATA_VARIABLE] = str(data_dir)
    with said_plainly():
        if experiment not in paper.EXPERIMENTS:
            known = listed(paper.EXPERIMENTS)
            raise UnknownNameError(f"there is no `{experiment}`; there are {known}.")
        chosen = paper.EXPERIMENTS[experiment]
        records = results or Path("results") / experiment
        for recipe in [
            make(seed) for seed in range(seeds if run else 0) for make in chosen.recipes
        ]:
            asked = replace(recipe, epochs=epochs or recipe.epochs)
            folder = out / paper.folder_name(asked)
            if not (folder / "summary.json").exists():
                runs.run_job(runs.Job(chosen.task, asked, folder))
            paper.write_record(folder, records / folder.name)
        table = chosen.table(paper.read_records(records))
    if as_json:
        show_json([run.to_dict() for run in paper.read_records(records)])
    else:
        show(table)

"""`diffprune reproduce`: tables of the paper next to ours; they are made elsewhere."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from diffprune.cli.options import DataDir
from diffprune.cli.output import examples, said_plainly, show

EXAMPLES: Final = examples(
    "diffprune reproduce lenet5",
    "diffprune reproduce lenet5 --run --seeds 3    # anew; for hours",
)


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
    from diffprune.cli.runs import Job, run_job, use_data_dir  # noqa: PLC0415 - imports torch
    from diffprune.errors import UnknownNameError  # noqa: PLC0415
    from diffprune.experiment import reproduce as tables  # noqa: PLC0415
    from diffprune.experiment.builtin import lenet5_mnist  # noqa: PLC0415

    use_data_dir(data_dir)
    with said_plainly():
        if experiment != "lenet5":
            raise UnknownNameError(f"there is no `{experiment}`; type `lenet5`.")
        chosen = [
            replace(row.recipe(seed), epochs=epochs)
            for seed in range(seeds)
            for row in reversed(tables.TABLE1)
        ]
        for recipe in chosen if run else []:
            folder = out / tables.folder_name(recipe)
            if not (folder / "summary.json").exists():
                run_job(Job(lenet5_mnist, recipe, folder))
            tables.write_record(folder, results / folder.name)
        show(tables.table1(tables.read_records(results)))

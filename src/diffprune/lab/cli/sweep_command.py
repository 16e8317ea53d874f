"""`diffprune sweep`: runs for several values, or a search for values; their front."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diffprune.errors import ArgumentError
from diffprune.lab.cli.options import AsJson, check_spec, parse_budget, read_values
from diffprune.lab.cli.output import (
    INTERRUPTED,
    said_plainly,
    say,
    show,
    show_json,
    with_examples,
)
from diffprune.lab.formatting import typed

if TYPE_CHECKING:
    from diffprune.lab import Front, Recipe, Search


@with_examples(
    "diffprune sweep digits --vary macs=0.5,0.3,0.1 --out sweeps/digits",
    "diffprune sweep mine.py:my_task --vary strength=1e-5,1e-4 --workers 2",
    "diffprune sweep mine.py:my_task --vary latency=5ms,2ms --figure front.svg",
    "diffprune sweep mine.py:my_task --search macs=0.1..0.6 --search "
    "gate_lr=1e-3..1e-1 --trials 30",
    "diffprune sweep mine.py:my_task --budget macs=0.3 --search gate_lr=1e-3..1e-1 "
    "--goal error --prune",
)
def sweep(  # noqa: PLR0913 - options of a command
    task: Annotated[
        str,
        typer.Argument(help="`file.py:function`, or a built-in task."),
    ],
    *,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE,...",
            help="A run for each value: of a budget (`macs`, `parameters`, `memory`, "
            "`size`, `latency`) or of the recipe (`strength`, `lr`, ...). Repeat it "
            "to vary something else, too.",
        ),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LOW..HIGH",
            help="Instead of --vary: let Optuna choose from a range, on a log scale: "
            "of a budget, or `strength`, `gate_lr`, `lr`, ... Repeat it to search "
            "several at once.",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Of a search, in all; 20 by default."),
    ] = None,
    goal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="What a search makes small: `error`, `macs`, `parameters`. Repeat it "
            "for several; by default error and macs.",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Runs of each trial; their mean counts."),
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What chooses: `tpe` (by default), `nsga2` for hundreds of trials, "
            "`random`.",
        ),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            metavar="",
            help="Give up trials that do worse than half of the others; for one "
            "--goal only.",
        ),
    ] = False,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COST=AMOUNT",
            help="What may be left in all runs: `macs=0.3`, `latency=5ms`.",
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Passes over the data.")
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Of the runs, and of a search.")
    ] = 0,
    out: Annotated[
        Path, typer.Option(help="Folder of the sweep; share it to share the work.")
    ] = Path("sweeps"),
    workers: Annotated[
        int, typer.Option(min=1, metavar="N", help="Processes at a time.")
    ] = 1,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A database to share the work through: "
            "`postgresql+psycopg://user:password@host/name`. By default a file in the "
            "folder.",
        ),
    ] = None,
    on: Annotated[
        str,
        typer.Option(help="What runs the workers: `processes`, or `ray`."),
    ] = "processes",
    device: Annotated[str, typer.Option(help="Where to train.")] = "cpu",
    figure: Annotated[
        Path | None, typer.Option(help="Draw the front: an SVG, PNG or HTML file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train a task for several values, or search for values; show error against cost.

    Interrupted, the same command continues. Several machines that share the folder can
    run it at the same time.
    """
    options = {
        "trials": trials,
        "goals": goal and tuple(goal),
        "seeds": seeds,
        "sampler": sampler,
        "prune": prune or None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    with said_plainly():
        check_spec(task)
        _check_asked(vary, search, given)
        values = read_values(vary or [])
    from diffprune.lab.sweeps import sweep as run_sweep  # noqa: PLC0415 - imports torch
    from diffprune.lab.sweeps.pareto import check_figure  # noqa: PLC0415 - as above

    with said_plainly():
        if figure is not None:
            check_figure(figure)
        try:
            front = run_sweep(
                task,
                _search(search, given) if search else values,
                out=out,
                recipe=_recipe(task, seed, epochs, budget),
                workers=workers,
                device=device,
                storage=storage,
                on=on,  # pyright: ignore[reportArgumentType] - it is checked there
            )
        except KeyboardInterrupt:
            say("Stopped; the same command goes on from here.")
            raise typer.Exit(INTERRUPTED) from None
        if figure is not None:
            front.figure(figure)
    _show(front, out, as_json=as_json)


def _check_asked(
    vary: list[str] | None, search: list[str] | None, given: dict[str, Any]
) -> None:
    if bool(vary) == bool(search):
        raise ArgumentError(
            "a sweep has values or ranges: type `--vary macs=0.5,0.3,0.1`, or "
            f"`--search macs=0.1..0.6`{', not both' if vary else ''}."
        )
    if vary and given:
        name = "goal" if "goals" in given else next(iter(given))
        raise ArgumentError(
            f"`--{name}` belongs to a search: type `--search macs=0.1..0.6` in place "
            "of `--vary`, or leave it out."
        )


def _search(search: list[str], given: dict[str, Any]) -> "Search":
    from diffprune.lab.sweeps.search import Search, read_ranges  # noqa: PLC0415 - imports torch

    return Search(ranges=read_ranges(search), **given)


def _recipe(
    task: str, seed: int, epochs: int | None, budget: list[str] | None
) -> "Recipe":
    from dataclasses import replace  # noqa: PLC0415 - beside what needs it

    from diffprune.lab.runs.tasks import load_task  # noqa: PLC0415 - imports torch
    from diffprune.lab.training.recipe import check_recipe  # noqa: PLC0415

    _, make_recipe = load_task(task)
    changes: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    if budget:
        changes |= {"budget": parse_budget(budget), "strength": None}
    recipe = replace(make_recipe(seed), **changes)
    check_recipe(recipe)
    return recipe


def _show(front: "Front", out: Path, *, as_json: bool) -> None:
    if as_json:
        show_json(front.to_dict())
        return
    show(front.table())
    if front.given_up:
        say(f"Given up early, as hopeless: {', '.join(front.given_up)}")
    say(f"Next:  {typed('compare', out)}/*/  (or report)")

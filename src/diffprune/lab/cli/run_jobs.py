"""Put a run together from what a command was given, train it, say what came out."""

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from diffprune.errors import ArgumentError
from diffprune.lab import Recipe, Run, read_run, train
from diffprune.lab.cli.output import INTERRUPTED, say, screen
from diffprune.lab.formatting import spell_widths, typed
from diffprune.lab.runs.rebuild import task_of
from diffprune.lab.runs.tasks import load_recipe, load_task
from diffprune.lab.tensorboard_events import tensorboard
from diffprune.lab.training.loop import OnEpoch
from diffprune.lab.training.progress_bar import progress_bars
from diffprune.lab.training.task import MakeTask


@dataclass(frozen=True)
class Job:
    """What to train, how, and where to write it."""

    make_task: MakeTask
    recipe: Recipe
    folder: Path


def find_job(
    task: str,
    recipe: str | None,
    given: Mapping[str, Any],
    *,
    out: Path | None,
    dense: bool,
    trust: bool = False,
) -> Job:
    """Put a run together from what was asked for, and defaults.

    Args:
        task: Name of a task, or the folder of a run to continue.
        recipe: Name of a recipe, if not the usual one of the task.
        given: Entries of the recipe that the user chose.
        out: Run folder, if not the usual one.
        dense: Whether to leave the gates out.
        trust: Whether a run to continue may name code outside the present folder.

    Raises:
        UnknownNameError: If there is no such task or recipe.
        ArgumentError: If the folder holds no run, or another recipe is asked for.
    """
    if Path(task).is_dir():
        folder = Path(task)
        if dense or recipe is not None:
            raise ArgumentError(
                f"`{task}` is a run, which goes on with its own recipe: leave out "
                f"`{'--dense' if dense else '--recipe'}`.\nTo train its task anew, "
                "name the task, as in `mine.py:my_task`."
            )
        chosen = _changed(read_run(folder).recipe, given)
        return Job(task_of(folder, trust=trust), chosen, out or folder)
    make_task, make_recipe = load_task(task)
    usual = (make_recipe if recipe is None else load_recipe(recipe))(0)
    chosen = _changed(usual, given)
    if dense:
        chosen = replace(chosen.as_dense(), name=f"{chosen.name}-dense")
    return Job(make_task, chosen, out or Path("runs") / chosen.folder_name)


def _changed(recipe: Recipe, given: Mapping[str, Any]) -> Recipe:
    """A recipe with some entries replaced; a strength replaces a budget, too."""
    asked = {name for name in ("strength", "budget") if name in given}
    other = dict.fromkeys({"strength", "budget"} - asked) if asked else {}
    options = {**recipe.pruner, **given.get("pruner", {})}
    return replace(recipe, **{**other, **given, "pruner": options})


def run_job(job: Job, device: str = "cpu", *, with_tensorboard: bool = False) -> Run:
    """Train with a progress bar; after Ctrl-C say how to go on, and leave.

    Args:
        job: What to train.
        device: Where.
        with_tensorboard: Whether epochs become events, too, in the run folder.

    Raises:
        MissingPackageError: If tensorboard is not installed.
        ArgumentError: If the run cannot start.
    """
    try:
        with _listening(job, with_tensorboard=with_tensorboard) as on_epoch:
            make_task, recipe, out = job.make_task, job.recipe, job.folder
            train(make_task, recipe, out=out, device=device, on_epoch=on_epoch)
    except KeyboardInterrupt:
        say(f"Stopped; `{typed('train', job.folder)}` goes on from here.")
        raise typer.Exit(INTERRUPTED) from None
    return read_run(job.folder)


@contextmanager
def _listening(job: Job, *, with_tensorboard: bool) -> Generator[OnEpoch, None, None]:
    """Tell a progress bar of every epoch, and TensorBoard if asked to."""
    name = job.folder.name
    with ExitStack() as stack:
        bars = progress_bars(screen(), [name], epochs=job.recipe.epochs)
        listeners = [stack.enter_context(bars)[name]]
        if with_tensorboard:
            events = tensorboard(job.folder / "tensorboard")
            listeners.append(stack.enter_context(events))
        yield lambda epoch: [listen(epoch) for listen in listeners]


def result(run: Run) -> str:
    """What came out, in two lines."""
    end = run.latest
    assert end is not None  # noqa: S101 - `train` has returned
    return (
        f"{spell_widths(end.effective)}  {end.parameters:,} parameters  "
        f"{end.macs:,} MACs  test error {end.test_error:.2f} %\n"
        f"Written to {run.folder}."
    ).lstrip()


def advice(run: Run) -> str:
    """What to do next."""
    if not run.is_dense and not run.removals:
        return "Nothing was removed: ask for less, as in `--budget macs=0.3`."
    return f"Next:  {typed('export', run.folder, '--to onnx')}  (or bench, report)"

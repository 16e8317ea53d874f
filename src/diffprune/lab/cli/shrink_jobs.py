"""Shrink the network of a task without training, and say what that did."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from safetensors.torch import load_file
from torch import Tensor, nn

from diffprune._budget import Budget
from diffprune._core.arguments import shown
from diffprune._core.modules import check_device
from diffprune._io import save_pruned
from diffprune._shrink import Shrinkage, shrinkage
from diffprune.errors import ArgumentError
from diffprune.lab.cli.output import screen
from diffprune.lab.formatting import cost, percent
from diffprune.lab.runs.folder import check_holds_no_run
from diffprune.lab.runs.rebuild import rebuild, task_of
from diffprune.lab.runs.records import read_run
from diffprune.lab.runs.tasks import load_task
from diffprune.lab.training.metrics import error_rate
from diffprune.lab.training.recipe import Recipe, check_recipe
from diffprune.lab.training.task import Task, check_pair, check_task


@dataclass(frozen=True)
class Trained:
    """A trained network with its task.

    Attributes:
        name: What folders call it.
        model: The network.
        task: Where its data, loss and error are.
    """

    name: str
    model: nn.Module
    task: Task


@dataclass(frozen=True)
class Outcome:
    """What shrinking did.

    Attributes:
        found: The small network, and what was cut.
        dense_error: Error of the network before, in per cent, on test data.
        small_error: That of the small network.
        folder: Where the small network was written.
    """

    found: Shrinkage[nn.Module]
    dense_error: float
    small_error: float
    folder: Path

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        report = self.found.report
        return {
            "folder": str(self.folder),
            "dense_error": self.dense_error,
            "small_error": self.small_error,
            "loss_before": report.loss_before,
            "loss_after": report.loss_after,
            "costs": {
                name: {"whole": whole, "allowed": most, "left": now}
                for name, (whole, most, now) in report.costs.items()
            },
            "groups": [asdict(group) for group in report.groups],
        }


def find_trained(
    name: str, weights: Path | None, *, seed: int, batch_size: int, trust: bool
) -> Trained:
    """Make the network that is to be shrunk, with its weights.

    Args:
        name: A task, or the folder of a finished run.
        weights: A `state_dict` that the network of a task gets, as safetensors or as
            `torch.save` writes it.
        seed: Set before the task is made.
        batch_size: Examples per batch, for a task.
        trust: Whether a run may name code outside the present folder.

    Raises:
        ArgumentError: If there are no such weights, or they are those of another
            network.
        UnknownNameError: If there is no such task.
    """
    folder = Path(name)
    if folder.is_dir() and weights is not None:
        raise ArgumentError(
            f"the run in `{folder}` has its own weights; leave out `--weights`."
        )
    torch.manual_seed(seed)
    if folder.is_dir():
        recipe = read_run(folder).recipe.as_dense()
        task = _made(task_of(folder, trust=trust)(recipe))
        return Trained(folder.name, rebuild(folder, trust=trust).small, task)
    make, usual = load_task(name)
    recipe = usual(seed).as_dense()
    task = _made(make(_with_batches(recipe, batch_size)))
    if weights is not None:
        _load_(task.model, weights)
    return Trained(recipe.name, task.model, task)


def _with_batches(recipe: Recipe, size: int) -> Recipe:
    return Recipe.from_dict({**recipe.to_dict(), "batch_size": size})


def _made(task: object) -> Task:
    check_task(task)
    assert isinstance(task, Task)  # noqa: S101 - checked
    return task


def _load_(model: nn.Module, path: Path) -> None:
    try:
        model.load_state_dict(_tensors(path))
    except (RuntimeError, TypeError) as error:
        raise ArgumentError(
            f"`{path}` does not hold the weights of this network: {error}"
        ) from error


def _tensors(path: Path) -> Mapping[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found = torch.load(path, weights_only=True, map_location="cpu")
    except Exception as error:
        raise ArgumentError(
            f"`{path}` is damaged, or holds no weights: {type(error).__name__}."
        ) from error
    if not isinstance(found, Mapping):
        raise ArgumentError(f"`{path}` holds no `state_dict`, but {shown(found)}.")
    return found


def make_budget(limits: Mapping[str, float | str]) -> Budget:
    """What `--budget` asks for.

    Raises:
        UnknownNameError: If there is no such cost.
        ArgumentError: If an amount cannot be right.
    """
    check_recipe(Recipe(name="", epochs=1, budget=limits))
    return Budget(**dict[str, Any](limits))


def shrink_job(
    trained: Trained,
    budget: Budget,
    out: Path,
    device: str,
    **options: Any,  # noqa: ANN401 - those of `dp.shrink`
) -> Outcome:
    """Shrink with a progress bar, measure both networks, and write the small one.

    Args:
        trained: What to shrink.
        budget: What it may cost.
        out: Folder of the small network.
        device: Where to compute.
        options: Passed to `dp.shrink`.

    Raises:
        ArgumentError: If the folder holds a run, whose network would be lost.
    """
    check_holds_no_run(out)
    check_device(device)
    model, task = trained.model.to(device), trained.task
    with progress_bar(screen()) as tell:
        found = shrinkage(
            model,
            _on(device, task.train),
            task.loss,
            budget,
            progress=tell,
            **options,
        )
        tell("measuring errors", 0, 1)
        errors = [error_rate(one, task, task.test) for one in (model, found.model)]
    dense, small = (error.percent for error in errors)
    return Outcome(found, dense, small, save_pruned(found.model.cpu(), out))


def _on(device: str, batches: Any) -> Iterator[tuple[Tensor, Tensor]]:  # noqa: ANN401 - a loader
    for inputs, targets in map(check_pair, batches):
        yield inputs.to(device), targets.to(device)


@contextmanager
def progress_bar(console: Console) -> Generator[Callable[[str, int, int], None]]:
    """Show a bar for what is being done, and how long it has taken.

    Yields:
        What `dp.shrink` takes as `progress`.
    """
    progress = Progress(
        TextColumn("{task.description:<17}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    with progress:
        bar = progress.add_task("", total=None)
        yield lambda name, done, total: progress.update(
            bar, description=name, completed=done, total=total
        )


def tables(outcome: Outcome) -> tuple[Table, Table]:
    """What was cut where, and what that costs."""
    report = outcome.found.report
    groups = Table(box=None, pad_edge=False)
    groups.add_column("group")
    for name in ("units", "left", "worth of what left"):
        groups.add_column(name, justify="right")
    for group in report.groups:
        units = str(group.before), str(group.after)
        groups.add_row(group.name, *units, f"{group.worth:.2g}" if group.worth else "")
    costs = Table(box=None, pad_edge=False)
    for name in ("", "dense", "small", ""):
        costs.add_column(name, justify="left" if not name else "right")
    for name, (whole, _, now) in report.costs.items():
        values = cost(name, whole), cost(name, now)
        costs.add_row(name, *values, percent(now / whole))
    losses = f"{report.loss_before:.4g}", f"{report.loss_after:.4g}"
    costs.add_row("loss, training data", *losses, "")
    dense, small = outcome.dense_error, outcome.small_error
    costs.add_row("error, test data", f"{dense:.2f} %", f"{small:.2f} %", "")
    return groups, costs

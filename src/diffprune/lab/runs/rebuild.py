"""Make the models of a run again from its task and its saved weights."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

import diffprune
from diffprune._io import load_pruned
from diffprune._pruner import Pruner
from diffprune.errors import ArgumentError
from diffprune.gates.penalty import named_gates
from diffprune.lab.runs.import_spec import code_of
from diffprune.lab.runs.records import Run, read_run
from diffprune.lab.runs.tasks import load_task
from diffprune.lab.training.task import MakeTask, Task

_DIFFPRUNE: Final = Path(diffprune.__file__).resolve().parent
_FEW: Final = 2
"""Examples that a model is traced with."""


@dataclass(frozen=True)
class Models:
    """What a run started from, and what it left.

    Attributes:
        dense: The model at full width, without gates; untrained.
        small: The model that came out, trained.
        inputs: Examples from the test data.
    """

    dense: nn.Module
    small: nn.Module
    inputs: Tensor


def rebuild(folder: Path, task: str | None = None, *, trust: bool = False) -> Models:
    """Make the models of a finished run again.

    Args:
        folder: Of the run.
        task: Where its task is written, if not where the run says.
        trust: Whether to run code outside the present folder if the run names it.

    Raises:
        ArgumentError: If the run is unfinished or damaged, or its task unknown or not
            the one that was trained.
    """
    run = read_run(folder)
    if run.outcome is None:
        raise ArgumentError(
            f"the run in `{folder}` is unfinished: it has {len(run.epochs)} of "
            f"{run.recipe.epochs} epochs.\nFinish it: `diffprune train {folder}`."
        )
    made = _make_again(run, task_of(folder, task, trust=trust))
    dense = _without_gates(made.model)
    inputs, _ = next(iter(made.test))
    return Models(dense, _shrunk(folder, dense), inputs)


def gated_model(
    folder: Path, task: str | None = None, *, trust: bool = False
) -> nn.Module | None:
    """Make the model of a run at full width, with its gates; None if it has none.

    Args:
        folder: Of the run.
        task: Where its task is written, if not where the run says.
        trust: Whether to run code outside the present folder if the run names it.
    """
    recipe = read_run(folder).recipe
    if recipe.is_dense:
        return None
    with torch.random.fork_rng():
        made = task_of(folder, task, trust=trust)(recipe)
        inputs, _ = next(iter(made.test))
        if not named_gates(made.model):
            Pruner(made.model, inputs[:_FEW], strength=recipe.strength or 0.0)
    return made.model.eval()


def task_of(folder: Path, task: str | None = None, *, trust: bool = False) -> MakeTask:
    """Find the task of a run; this runs the file that it is written in.

    Args:
        folder: Of the run.
        task: Where its task is written, if not where the run says.
        trust: Whether to run a file that the run names, wherever it is.

    Raises:
        ArgumentError: If the run does not say where its task is, or names code outside
            the present folder and is not trusted.
        UnknownNameError: If it is not there any more.
    """
    if task is not None:
        return load_task(task)[0]
    where = _whereabouts(folder)
    if not trust:
        _check_ours(folder, where)
    return load_task(where)[0]


def _whereabouts(folder: Path) -> str:
    where = read_run(folder).task
    if where is None:
        raise ArgumentError(
            f"the run in `{folder}` does not say where its task is written.\n"
            "Add `--task file.py:function`."
        )
    return str(folder / where) if ".py:" in where else where


def _check_ours(folder: Path, where: str) -> None:
    """Refuse to run code that may have come with the run, or from anywhere."""
    code = code_of(where)
    if code is None or code.is_relative_to(_DIFFPRUNE):
        return
    is_near = code.is_relative_to(Path.cwd().resolve())
    if is_near and not code.is_relative_to(folder.resolve()):
        return
    raise ArgumentError(
        f"the run in `{folder}` asks to run `{code}`, which is "
        f"{'inside that run' if is_near else 'not in the present folder'}.\n"
        "If you trust it, add `--trust`; or say where the task is, with "
        "`--task file.py:function`."
    )


def _make_again(run: Run, make_task: MakeTask) -> Task:
    """As at the start of the run, but without gates where the task can do without."""
    with torch.random.fork_rng():
        torch.manual_seed(run.recipe.seed)
        return make_task(run.recipe.as_dense())


def _without_gates(model: nn.Module) -> nn.Module:
    for name in named_gates(model):
        model.set_submodule(name, nn.Identity())
    return model


def _shrunk(folder: Path, dense: nn.Module) -> nn.Module:
    try:
        return load_pruned(copy.deepcopy(dense), folder).eval()
    except FileNotFoundError as error:
        raise ArgumentError(f"the run in `{folder}` is damaged: {error}") from error
    except ArgumentError as error:
        raise ArgumentError(
            f"the network in `{folder}` does not fit its task, or is damaged.\n{error}"
        ) from error

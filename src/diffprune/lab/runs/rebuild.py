"""Make the models of a run again from its task and its saved weights."""

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from diffprune._io import load_pruned
from diffprune._pruner import Pruner
from diffprune.errors import ArgumentError
from diffprune.gates.penalty import named_gates
from diffprune.lab.runs.records import Run, read_run
from diffprune.lab.runs.tasks import load_task
from diffprune.lab.training.task import MakeTask, Task

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


def rebuild(folder: Path, task: str | None = None) -> Models:
    """Make the models of a finished run again.

    Args:
        folder: Of the run.
        task: Where its task is written, if not where the run says.

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
    made = _make_again(run, task_of(folder, task))
    dense = _without_gates(made.model)
    inputs, _ = next(iter(made.test))
    return Models(dense, _shrunk(folder, dense), inputs)


def gated_model(folder: Path, task: str | None = None) -> nn.Module | None:
    """Make the model of a run at full width, with its gates; None if it has none.

    Args:
        folder: Of the run.
        task: Where its task is written, if not where the run says.
    """
    recipe = read_run(folder).recipe
    if recipe.strength is None:
        return None
    with torch.random.fork_rng():
        made = task_of(folder, task)(recipe)
        inputs, _ = next(iter(made.test))
    if not named_gates(made.model):
        gates: dict[str, Any] = {"gate": lambda group: recipe.gate.make(group.size)}
        Pruner(made.model, inputs[:_FEW], strength=recipe.strength, **gates)
    return made.model.eval()


def task_of(folder: Path, task: str | None = None) -> MakeTask:
    """Find the task of a run.

    Raises:
        ArgumentError: If the run does not say where it is.
        UnknownNameError: If it is not there any more.
    """
    return load_task(task or _whereabouts(folder))[0]


def _whereabouts(folder: Path) -> str:
    where = read_run(folder).task
    if where is None:
        raise ArgumentError(
            f"the run in `{folder}` does not say where its task is written.\n"
            "Add `--task file.py:function`."
        )
    return str(folder / where) if ".py:" in where else where


def _make_again(run: Run, make_task: MakeTask) -> Task:
    """As at the start of the run, but without gates where the task can do without."""
    with torch.random.fork_rng():
        torch.manual_seed(run.recipe.seed)
        return make_task(replace(run.recipe, strength=None))


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

"""Make the models of a run again from its task and its saved weights."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

import diffprune
from diffprune._core.copying import copied
from diffprune._core.tensor_files import read_tensors
from diffprune._io import load_pruned
from diffprune._pruner import Pruner
from diffprune.errors import ArgumentError
from diffprune.gates.penalty import gate_paths, named_gates
from diffprune.lab.formatting import typed
from diffprune.lab.runs.import_spec import code_of, make_module
from diffprune.lab.runs.records import INPUTS, Run, read_run
from diffprune.lab.runs.tasks import load_task
from diffprune.lab.training.task import MakeTask, check_pair, check_task

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
            f"{run.recipe.epochs} epochs.\nFinish it: `{typed('train', folder)}`."
        )
    model, inputs = make_model(run, task, trust=trust, is_dense=True)
    dense = _without_gates(model)
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
    run = read_run(folder)
    if run.is_dense:
        return None
    model, inputs = make_model(run, task, trust=trust)
    if not named_gates(model):
        with torch.random.fork_rng():
            Pruner(model, inputs[:_FEW], strength=0.0)
    return model.eval()


def make_model(
    run: Run, task: str | None = None, *, trust: bool = False, is_dense: bool = False
) -> tuple[nn.Module, Tensor]:
    """Make the model of a run as it was at the start, and example inputs for it.

    Args:
        run: The run.
        task: Where its task is written, if not where the run says.
        trust: Whether to run code outside the present folder if the run names it.
        is_dense: Whether to leave out gates that the task places, if it can.
    """
    recipe = run.recipe.as_dense() if is_dense else run.recipe
    with torch.random.fork_rng():
        torch.manual_seed(recipe.seed)
        if (run.folder / INPUTS).exists():
            model = make_module(_trusted(run, task, trust=trust))
            return model, read_tensors(run.folder / INPUTS)[0]["inputs"]
        made = task_of(run.folder, task, trust=trust)(recipe)
        check_task(made)
        inputs, _ = check_pair(next(iter(made.test)))
        return made.model, inputs


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
    return load_task(_trusted(read_run(folder), task, trust=trust))[0]


def _trusted(run: Run, task: str | None, *, trust: bool) -> str:
    """Where the task of a run is, if the code there may be run."""
    if task is not None:
        return task
    if run.task is None:
        raise ArgumentError(
            f"the run in `{run.folder}` does not say where its task is written.\n"
            "Add `--task file.py:function`."
        )
    where = str(run.folder / run.task) if ".py:" in run.task else run.task
    if not trust:
        _check_ours(run.folder, where)
    return where


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


def _without_gates(model: nn.Module) -> nn.Module:
    for name in gate_paths(model):
        model.set_submodule(name, nn.Identity())
    return model


def _shrunk(folder: Path, dense: nn.Module) -> nn.Module:
    try:
        return load_pruned(copied(dense), folder).eval()
    except FileNotFoundError as error:
        raise ArgumentError(f"the run in `{folder}` is damaged: {error}") from error
    except ArgumentError as error:
        raise ArgumentError(
            f"the network in `{folder}` does not fit its task, or is damaged.\n{error}"
        ) from error

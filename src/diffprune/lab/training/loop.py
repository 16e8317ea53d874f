"""The training loop: from a task and a recipe to a small model and a run folder.

Read `train` from top to bottom: that is all that happens in a run.
"""

import math
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from torch.utils import _pytree as pytree

from diffprune._budget import Budget
from diffprune._core.door import door
from diffprune._core.modules import check_device
from diffprune._pruner import Pruner
from diffprune.errors import ArgumentError
from diffprune.gates import Gate
from diffprune.gates.penalty import named_gates
from diffprune.lab.runs.folder import Folder
from diffprune.lab.runs.import_spec import spell
from diffprune.lab.runs.records import Epoch
from diffprune.lab.training.metrics import measure_epoch, measure_outcome, open_units
from diffprune.lab.training.no_pruning import NoPruning, Trainable
from diffprune.lab.training.progress import Progress, Stopwatch
from diffprune.lab.training.recipe import Recipe, check_recipe
from diffprune.lab.training.signals import Interruption
from diffprune.lab.training.task import (
    MakeTask,
    Task,
    check_pair,
    check_task,
    errors_of,
    loss_of,
    outputs_of,
)

NUM_EXAMPLES: Final = 8
"""Test inputs that the model is traced with, and every removal is verified on."""

OnEpoch = Callable[[Epoch], object]


@door
def train(
    make_task: MakeTask,
    recipe: Recipe,
    *,
    out: str | os.PathLike[str],
    device: str = "cpu",
    on_epoch: OnEpoch = lambda _: None,
) -> nn.Module:
    """Train a model while it shrinks, and return what is left: plain and small.

    Interrupt it, and the same call continues where it stopped, with the same result.
    Modules that the task has put in eval mode stay in it, unless the whole model is.

    Args:
        make_task: From the recipe to model and data; called once the seed is set.
        recipe: The numbers of the run.
        out: Folder for the records; `read_run` reads them. One process at a time may
            write into it.
        device: Where to train.
        on_epoch: Called with the record of every epoch.

    Raises:
        ArgumentError: If `out` holds another run, or this one, finished, or another
            process is writing into it, or the loss becomes infinite or NaN, or the
            parts of the task do not fit each other.
        KeyboardInterrupt: After Ctrl-C, once the checkpoint is written. Outside the
            main thread no signal is heard, and training goes on.
    """
    check_recipe(recipe)
    check_device(device)
    spec = spell(make_task, Path(out))
    with (
        Folder.open(Path(out), recipe, spec) as folder,
        _seeded(recipe.seed),
        Interruption() as interruption,
    ):
        task = make_task(recipe)
        check_task(task)
        pruner = _make_pruner(task, recipe, device)
        optimizer = _make_optimizer(task, recipe, pruner)
        saved = folder.load(pruner, optimizer)
        progress = Progress() if saved is None else Progress(**saved)
        for number in range(progress.epoch, recipe.epochs):
            lr = _set_lr_(optimizer, recipe.lr_factor(number))
            for inputs, targets in map(check_pair, progress.remaining(task.train)):
                watch = Stopwatch()
                batch = inputs.to(device), targets.to(device)
                loss, errors = _step_(task, recipe, pruner, optimizer, batch)
                _check_finite(loss, progress, folder)
                progress.add(len(inputs), loss, errors, watch)
                if interruption.is_requested:
                    folder.save(pruner, optimizer, progress.to_dict())
                    raise KeyboardInterrupt
            epoch = measure_epoch(pruner, task, progress, lr=lr)
            progress = progress.next_epoch()
            folder.write_epoch(epoch, pruner.history)
            folder.save(pruner, optimizer, progress.to_dict())
            on_epoch(epoch)
        raw = open_units(pruner)
        small = pruner.finalize()
        seconds = progress.total_seconds
        outcome = measure_outcome(pruner, task, raw, seconds=seconds)
        folder.finish(small, pruner, outcome)
    return small


def _step_(
    task: Task,
    recipe: Recipe,
    pruner: Trainable,
    optimizer: Optimizer,
    batch: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """One step of optimization, with removal when it is due: the loss, the errors."""
    inputs, targets = batch
    model = pruner.model
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=recipe.amp):
        outputs = outputs_of(model, inputs)
        loss = loss_of(task, outputs, targets)
    optimizer.zero_grad()
    (loss + pruner.penalty()).backward()
    if recipe.clip_norm is not None:
        clip_grad_norm_(model.parameters(), recipe.clip_norm)
    optimizer.step()
    pruner.step(optimizer)
    seen = pytree.tree_map_only(Tensor, Tensor.detach, outputs)
    return loss.detach(), errors_of(task, seen, targets)


def _check_finite(loss: Tensor, progress: Progress, folder: Folder) -> None:
    if math.isfinite(loss):
        return
    good = folder.checkpoint
    last = (
        f"The last good checkpoint is `{good}`, of the end of epoch {progress.epoch}: "
        "the same call goes on from there, and would come to the same."
        if good.exists()
        else f"There is no checkpoint yet in `{folder.path}`."
    )
    raise ArgumentError(
        f"the loss became {float(loss)} in epoch {progress.epoch + 1}, batch "
        f"{progress.batches + 1}.\n{last} Start another run with a smaller `lr`, or "
        "with `clip_norm`."
    )


def _make_pruner(task: Task, recipe: Recipe, device: str) -> Trainable:
    inputs, _ = check_pair(next(iter(task.test)))
    model, examples = task.model.to(device), inputs[:NUM_EXAMPLES].to(device)
    if not model.training:
        model.train()
    if task.pruner is not None:
        return task.pruner(model, examples)
    if recipe.is_dense:
        return NoPruning(model, examples)
    options = dict(recipe.pruner)
    if recipe.gate and not named_gates(model):
        options["gate"] = lambda group: Gate(group.size, **recipe.gate)
    steps = recipe.epochs * len(task.train)
    return Pruner(model, examples, **_pressure(recipe, steps), **options)


def _pressure(recipe: Recipe, steps: int) -> dict[str, Any]:
    if recipe.budget is None:
        return {"strength": recipe.strength}
    limits: dict[str, Any] = {**recipe.budget}
    return {"budget": Budget(**limits, steps=steps)}


def _make_optimizer(task: Task, recipe: Recipe, pruner: Trainable) -> Optimizer:
    groups = pruner.parameter_groups(
        lr=recipe.lr, gate_lr=recipe.gate_lr, weight_decay=recipe.weight_decay
    )
    made: Any = task.optimizer(
        [{**group, "initial_lr": group["lr"]} for group in groups]
    )
    if not all("initial_lr" in group for group in getattr(made, "param_groups", [{}])):
        raise ArgumentError(
            "the optimizer of the task must be one of the parameter groups that it is "
            f"given, with their learning rates; got {type(made).__name__} without.\n"
            "Pass them on: `optimizer=lambda groups: torch.optim.SGD(groups, "
            "momentum=0.9)`."
        )
    return made


def _set_lr_(optimizer: Optimizer, factor: float) -> float:
    """Scale all learning rates; return that of the weights."""
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * factor
    return optimizer.param_groups[0]["lr"]


@contextmanager
def _seeded(seed: int) -> Generator[None, None, None]:
    """Use a seed, and leave the global random state as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield

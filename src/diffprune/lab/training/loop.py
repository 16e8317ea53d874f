"""The one training loop; top to bottom, this is all that happens in a run."""

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from diffprune._budget import Budget
from diffprune._pruner import Pruner
from diffprune.gates.penalty import named_gates
from diffprune.lab.runs.folder import Folder
from diffprune.lab.runs.import_spec import spell
from diffprune.lab.runs.records import Epoch
from diffprune.lab.training.metrics import measure_epoch, measure_outcome, open_units
from diffprune.lab.training.no_pruning import Unpruned
from diffprune.lab.training.progress import Progress, Stopwatch
from diffprune.lab.training.recipe import Recipe
from diffprune.lab.training.signals import Interruption
from diffprune.lab.training.task import MakeTask, Task, check_task

NUM_EXAMPLES: Final = 8
"""Test inputs that the model is traced with, and every removal is verified on."""

OnEpoch = Callable[[Epoch], object]


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

    Args:
        make_task: From the recipe to model and data; called once the seed is set.
        recipe: The numbers of the run.
        out: Folder for the records; `read_run` reads them.
        device: Where to train.
        on_epoch: Called with the record of every epoch.

    Raises:
        ArgumentError: If `out` holds another run, or this one, finished.
        KeyboardInterrupt: After Ctrl-C, once the checkpoint is written.
    """
    folder = Folder.open(Path(out), recipe, spell(make_task, Path(out)))
    with _seeded(recipe.seed), Interruption() as interruption:
        task = make_task(recipe)
        check_task(task)
        pruner = _make_pruner(task, recipe, device)
        optimizer = _make_optimizer(task, recipe, pruner)
        saved = folder.load(pruner, optimizer)
        progress = Progress() if saved is None else Progress(**saved)
        for number in range(progress.epoch, recipe.epochs):
            lr = _set_lr_(optimizer, recipe.lr_factor(number))
            for inputs, targets in progress.remaining(task.train):
                watch = Stopwatch()
                batch = inputs.to(device), targets.to(device)
                loss, errors = _step_(task, recipe, pruner, optimizer, batch)
                progress.add(loss, errors, watch)
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
    pruner: Pruner[Any],
    optimizer: Optimizer,
    batch: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """One step of optimization, with removal when it is due: the loss, the errors."""
    inputs, targets = batch
    model = pruner.model.train()
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=recipe.amp):
        outputs = model(inputs)
        loss = task.loss(outputs, targets)
    optimizer.zero_grad()
    (loss + pruner.penalty()).backward()
    if recipe.clip_norm is not None:
        clip_grad_norm_(model.parameters(), recipe.clip_norm)
    optimizer.step()
    pruner.step(optimizer)
    return loss.detach(), task.error(outputs.detach(), targets)


def _make_pruner(task: Task, recipe: Recipe, device: str) -> Pruner[Any]:
    inputs, _ = next(iter(task.test))
    model, examples = task.model.to(device), inputs[:NUM_EXAMPLES].to(device)
    if recipe.strength is None:
        # It has what training asks of a pruner, and no more.
        return cast("Pruner[Any]", Unpruned(model, examples))
    every = recipe.remove_every
    made: dict[str, Any] = {"gate": lambda group: recipe.gate.make(group.size)}
    return Pruner(
        model,
        examples,
        **_pressure(recipe, steps=recipe.epochs * len(task.train)),
        schedule=_never if every is None else every,
        reopen=recipe.reopen,
        **({} if named_gates(model) else made),
    )


def _pressure(recipe: Recipe, steps: int) -> dict[str, Any]:
    if recipe.budget is None:
        return {"strength": recipe.strength}
    limits: dict[str, Any] = {**recipe.budget}
    return {"budget": Budget(**limits, steps=steps)}


def _never(step: int) -> bool:
    del step
    return False


def _make_optimizer(task: Task, recipe: Recipe, pruner: Pruner[Any]) -> Optimizer:
    groups = pruner.parameter_groups(
        lr=recipe.lr, gate_lr=recipe.gate_lr, weight_decay=recipe.weight_decay
    )
    return task.optimizer([{**group, "initial_lr": group["lr"]} for group in groups])


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

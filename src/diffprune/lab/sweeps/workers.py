"""Workers that go through a sweep together, each in its own process."""

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from diffprune.errors import ArgumentError
from diffprune.lab import Recipe, read_run, train
from diffprune.lab.runs.records import Outcome
from diffprune.lab.runs.tasks import load_task
from diffprune.lab.sweeps.pareto import Front, make_front
from diffprune.lab.sweeps.points import Point, make_points
from diffprune.lab.sweeps.study import Study


@dataclass(frozen=True)
class Job:
    """What a worker has to know."""

    task: str
    points: Sequence[Point]
    out: Path
    threads: int
    device: str


def sweep(
    task: str,
    vary: Mapping[str, Sequence[float | str]],
    *,
    out: str | os.PathLike[str],
    recipe: Recipe | None = None,
    workers: int = 1,
    device: str = "cpu",
) -> Front:
    """Train a task once for each value, and compare what comes out.

    Interrupted, the same call continues: finished runs are kept, others go on from
    their checkpoints. Several machines that share the folder share the work.

    Args:
        task: As `diffprune train` takes it: `digits`, `file.py:function`.
        vary: What differs: `{"macs": [0.5, 0.3, 0.1]}`, `{"strength": [1e-5, 1e-4]}`.
        out: Folder of the sweep; every run has a folder in it.
        recipe: What runs have in common; by default that of the task.
        workers: Processes at a time.
        device: Where to train.

    Raises:
        ArgumentError: If there is nothing to vary, or nobody to do it.
        MissingPackageError: If Optuna is not installed.
    """
    if workers < 1:
        raise ArgumentError(f"a sweep needs at least one worker, got {workers}.")
    _, make_recipe = load_task(task)
    points = make_points(recipe or make_recipe(0), vary)
    threads = max(1, torch.get_num_threads() // workers)
    job = Job(task, points, Path(out), threads, device)
    study = Study(job.out)
    study.add([point.name for point in points])
    _work(job) if workers == 1 else _work_together(job, workers)
    outcomes = {p.name: _outcome(job.out / p.name) for p in points}
    found = {name: outcome for name, outcome in outcomes.items() if outcome is not None}
    return make_front(found, study.front())


def _work_together(job: Job, workers: int) -> None:
    # Not forked: threads of torch do not survive that.
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_work, args=(job,)) for _ in range(workers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise ArgumentError(
            "a worker of the sweep failed; its message is above. The same call "
            "continues where it stopped."
        )


def _work(job: Job) -> None:
    """Take points until none is left."""
    torch.set_num_threads(job.threads)
    make_task, _ = load_task(job.task)
    recipes, study = {p.name: p.recipe for p in job.points}, Study(job.out)
    while (taken := study.take()) is not None:
        number, name = taken
        folder = job.out / name
        try:
            outcome = _outcome(folder)
            if outcome is None:
                train(make_task, recipes[name], out=folder, device=job.device)
                outcome = _outcome(folder)
        except BaseException:
            study.failed(number)
            raise
        if outcome is not None:
            study.done(number, error_of(outcome), outcome.macs)


def error_of(outcome: Outcome) -> float:
    """What a run is judged by: data to choose with, if there is any."""
    choice = outcome.validation_error
    return outcome.test_error if choice is None else choice


def _outcome(folder: Path) -> Outcome | None:
    return read_run(folder).outcome if (folder / "recipe.json").exists() else None

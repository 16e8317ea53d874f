"""Train the runs of a sweep, several at a time, each in a process of its own."""

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from diffprune._core.door import door
from diffprune._core.modules import check_device
from diffprune._core.types import Count
from diffprune.errors import ArgumentError
from diffprune.lab import Recipe, read_run, train
from diffprune.lab.runs.records import RECIPE, Outcome, Run
from diffprune.lab.runs.tasks import load_task
from diffprune.lab.sweeps.pareto import Front, outcome_of
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


@door
def sweep(
    task: str,
    vary: Mapping[str, Sequence[float | str]],
    *,
    out: str | os.PathLike[str],
    recipe: Recipe | None = None,
    workers: Count = 1,
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
    check_device(device)
    _, make_recipe = load_task(task)
    points = make_points(recipe or make_recipe(0), vary)
    threads = max(1, torch.get_num_threads() // workers)
    job = Job(task, points, Path(out), threads, device)
    study = Study(job.out)
    study.add([point.name for point in points])
    _work(job) if workers == 1 else _work_together(job, workers)
    found = [run for p in points if (run := _finished(job.out / p.name))]
    found.sort(key=lambda run: -outcome_of(run).macs)
    return Front(tuple(found), frozenset(study.front()))


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
            run = _finished(folder)
            if run is None:
                train(make_task, recipes[name], out=folder, device=job.device)
                run = _finished(folder)
        except BaseException:
            study.failed(number)
            raise
        if run is not None:
            end = outcome_of(run)
            study.done(number, error_of(end), end.macs)


def error_of(outcome: Outcome) -> float:
    """What a run is judged by: data to choose with, if there is any."""
    choice = outcome.validation_error
    return outcome.test_error if choice is None else choice


def _finished(folder: Path) -> Run | None:
    if not (folder / RECIPE).exists():
        return None
    run = read_run(folder)
    return None if run.outcome is None else run

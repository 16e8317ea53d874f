"""Train the runs of a sweep, several at a time, each in a process of its own."""

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import torch

from diffprune._core.door import door
from diffprune._core.files import make_folder
from diffprune._core.modules import check_device
from diffprune._core.types import Count
from diffprune.errors import ProcessError
from diffprune.lab.runs.tasks import load_task
from diffprune.lab.sweeps.on_ray import work_on_ray
from diffprune.lab.sweeps.pareto import Front, outcome_of
from diffprune.lab.sweeps.points import make_points
from diffprune.lab.sweeps.search import Search
from diffprune.lab.sweeps.study import Study
from diffprune.lab.sweeps.trials import Job, finished, work
from diffprune.lab.training.recipe import Recipe

INTERRUPTED: Final = 130
"""How a process ends that was interrupted, as shells count."""


@door
def sweep(
    task: str,
    vary: Mapping[str, Sequence[float | str]] | Search,
    *,
    out: str | os.PathLike[str],
    recipe: Recipe | None = None,
    workers: Count = 1,
    device: str = "cpu",
    storage: str | None = None,
    on: Literal["processes", "ray"] = "processes",
) -> Front:
    """Train a task once for each value, or search for values, and compare the results.

    Interrupted, the same call continues: finished runs are kept, others go on from
    their checkpoints, those of workers that were killed, too. Several machines that
    share the folder share the work.

    Args:
        task: As `diffprune train` takes it: `digits`, `file.py:function`.
        vary: What differs: `{"macs": [0.5, 0.3, 0.1]}`, `{"strength": [1e-5, 1e-4]}`;
            or a `Search`.
        out: Folder of the sweep; every run has a folder in it.
        recipe: What runs have in common; by default that of the task.
        workers: Processes at a time.
        device: Where to train.
        storage: Address of a database that Optuna knows, such as
            `postgresql+psycopg://user:password@host/database`, to share the work
            through; by default a file in the folder. The study has the folder's name.
        on: What runs the workers: processes of this machine, or tasks of Ray.

    Raises:
        ArgumentError: If there is nothing to vary, or the folder holds runs of another
            task or recipe.
        StorageError: If the database cannot be reached.
        MissingPackageError: If Optuna, Ray or the driver of a database is missing.
        ProcessError: If a worker failed.
    """
    check_device(device)
    _, make_recipe = load_task(task)
    common = recipe or make_recipe(0)
    search = vary if isinstance(vary, Search) else None
    job = Job(
        task=task,
        out=Path(out),
        recipe=common,
        points=[] if isinstance(vary, Search) else make_points(common, vary),
        search=search,
        storage=storage,
        threads=max(1, torch.get_num_threads() // workers),
        device=device,
    )
    make_folder(job.out)
    job.check_earlier_runs()
    study = job.open_study()
    # Runs in a folder of their own machine are nobody else's to miss.
    study.add(job.names, again=job.unfinished() if storage is None else ())
    if on == "ray":
        work_on_ray(job, workers)
    elif workers == 1:
        work(job)
    else:
        _work_together(job, workers)
    return _front(job, study)


def _work_together(job: Job, workers: int) -> None:
    # Not forked: threads of torch do not survive that.
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_work_until_told, args=(job,)) for _ in range(workers)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise ProcessError(
            "a worker of the sweep failed; its message is above. The same call "
            "continues where it stopped."
        )


def _work_until_told(job: Job) -> None:
    """Work in a process of its own; Ctrl-C, which all processes hear, is no failure."""
    try:
        work(job)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _front(job: Job, study: Study) -> Front:
    """What is finished, from the largest network to the smallest."""
    trials = {run: trial for trial in job.names for run in job.folders(trial)}
    found = [run for name in trials if (run := finished(job.out / name))]
    found.sort(key=lambda run: -outcome_of(run).macs)
    best = study.front()
    return Front(
        runs=tuple(found),
        best=frozenset(run.name for run in found if trials[run.name] in best),
        searched=() if job.search is None else tuple(job.search.ranges),
        given_up=tuple(sorted(study.hopeless().intersection(job.names))),
    )

"""One trial of a sweep: train its runs, or continue them, and say what came of it.

The same function, whoever calls it: this process, another one, or a task of Ray.
"""

import statistics
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from diffprune.errors import DiffpruneError
from diffprune.lab import Recipe, read_run, train
from diffprune.lab.runs.folder import check_same, has_begun
from diffprune.lab.runs.import_spec import spell
from diffprune.lab.runs.records import RECIPE, Epoch, Run
from diffprune.lab.runs.tasks import load_task
from diffprune.lab.sweeps.pareto import outcome_of
from diffprune.lab.sweeps.points import Point
from diffprune.lab.sweeps.search import (
    GOALS,
    Search,
    searched_value,
    varied,
    worth_of,
)
from diffprune.lab.sweeps.study import Study, Trial
from diffprune.lab.training.task import MakeTask


class HopelessError(Exception):
    """A trial that is given up; it goes from the end of an epoch to the worker."""


@dataclass(frozen=True)
class Job:
    """What a worker has to know.

    Attributes:
        task: Where the task is written.
        out: Folder of the sweep.
        recipe: What all runs have in common.
        points: The runs, if they are known; otherwise a search.
        search: Which numbers to look for; None if the runs are known.
        storage: Address of a database; None for a file in the folder.
        threads: Of each worker.
        device: Where to train.
    """

    task: str
    out: Path
    recipe: Recipe
    points: Sequence[Point]
    search: Search | None
    storage: str | None
    threads: int
    device: str

    @property
    def goals(self) -> tuple[str, ...]:
        """What counts."""
        return GOALS[:2] if self.search is None else self.search.goals

    @property
    def names(self) -> list[str]:
        """What there is to work through."""
        if self.search is not None:
            return self.search.names()
        return [point.name for point in self.points]

    def folders(self, name: str) -> list[str]:
        """What the folders of a trial are called."""
        if self.search is None:
            return [name]
        return self.search.folders(self.recipe, name)

    def open_study(self) -> Study:
        """The list that all workers share."""
        study = Study(self.out, self.storage, len(self.goals))
        if self.search is not None:
            warmup = max(1, self.recipe.epochs // 4) if self.search.prune else None
            study.guide_(self.search.sampler, self.recipe.seed, warmup)
        return study

    def unfinished(self) -> set[str]:
        """Names of which the folder does not hold every run, come to its end."""
        return {
            name
            for name in self.names
            if not all(finished(self.out / folder) for folder in self.folders(name))
        }

    def check_earlier_runs(self) -> None:
        """Refuse a folder that holds runs of another task or recipe.

        Raises:
            ArgumentError: If it does; nothing is trained yet.
        """
        make_task, _ = load_task(self.task)
        for name in self.names:
            for folder in (self.out / folder for folder in self.folders(name)):
                if has_begun(folder):
                    run = read_run(folder)
                    asked = self._recipe_of(name, run.recipe)
                    check_same(run, asked, spell(make_task, folder))

    def _recipe_of(self, name: str, there: Recipe) -> Recipe:
        """What a run would be trained with; a search keeps what it once chose."""
        if self.search is None:
            return next(point.recipe for point in self.points if point.name == name)
        chosen = {n: searched_value(there, n) for n in self.search.ranges}
        known = {n: value for n, value in chosen.items() if value is not None}
        return replace(varied(self.recipe, known), seed=there.seed)

    def recipes(self, trial: Trial) -> dict[str, Recipe]:
        """The runs of a trial, by the names of their folders."""
        if self.search is None:
            return {p.name: p.recipe for p in self.points if p.name == trial.name}
        values = trial.suggest(self.search.read())
        return self.search.recipes(self.recipe, trial.name, values)


@dataclass(frozen=True)
class Place:
    """One of the runs of a trial: which one, where it is, and how it is trained."""

    number: int
    folder: Path
    recipe: Recipe


def work(job: Job) -> None:
    """Take trials until none is left."""
    torch.set_num_threads(job.threads)
    make_task, _ = load_task(job.task)
    study = job.open_study()
    while (trial := study.take()) is not None:
        try:
            with trial.alive():
                values = _try(job, make_task, trial)
        except HopelessError:
            study.stopped(trial)
        except DiffpruneError as error:
            study.failed(trial)
            if job.search is None:
                raise
            # Numbers that cannot be trained with are an answer, too.
            warnings.warn(f"{trial.name} came to nothing: {error}", stacklevel=1)
        except BaseException:
            study.failed(trial)
            raise
        else:
            study.done(trial, values)


def finished(folder: Path) -> Run | None:
    """The run in a folder, if it has come to its end."""
    if not (folder / RECIPE).exists():
        return None
    run = read_run(folder)
    return None if run.outcome is None else run


def _try(job: Job, make_task: MakeTask, trial: Trial) -> list[float]:
    """Train all runs of a trial: what they come to on average, for each goal."""
    runs = enumerate(job.recipes(trial).items())
    places = [Place(n, job.out / name, recipe) for n, (name, recipe) in runs]
    ends = [outcome_of(_run(job, make_task, place, trial)) for place in places]
    return [statistics.fmean(worth_of(end, goal) for end in ends) for goal in job.goals]


def _run(job: Job, make_task: MakeTask, place: Place, trial: Trial) -> Run:
    """Train one run, unless that is done; epochs on record are reported again."""

    def report(epoch: Epoch) -> None:
        step = place.number * place.recipe.epochs + epoch.number
        if len(job.goals) == 1 and trial.report(step, worth_of(epoch, job.goals[0])):
            raise HopelessError

    if (run := finished(place.folder)) is not None:
        return run
    for epoch in _epochs(place.folder):
        report(epoch)
    train(make_task, place.recipe, out=place.folder, device=job.device, on_epoch=report)
    return read_run(place.folder)


def _epochs(folder: Path) -> Sequence[Epoch]:
    """What is on record of a run that somebody began."""
    return read_run(folder).epochs if (folder / RECIPE).exists() else ()

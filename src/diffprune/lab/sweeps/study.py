"""Who trains which run of a sweep: a list that processes and machines share.

An Optuna study. Names wait until a worker takes them; a name whose worker died waits
again, with the numbers it had.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, final

from diffprune.lab.sweeps.heartbeat import beating, is_alive, sign_
from diffprune.lab.sweeps.search import Range
from diffprune.lab.sweeps.storage import import_optuna, open_study

ATTEMPTS: Final = 3
"""Workers that may die over a trial before others leave it alone."""
_FIRST_TRIALS: Final = 5
_PRIME, _SEEDS = 100_003, 2**32


@final
class Trial:
    """A name that a worker has taken.

    Attributes:
        name: The name.
        number: What Optuna calls it.
    """

    def __init__(self, trial: Any, name: str) -> None:  # noqa: ANN401 - of Optuna
        self._trial = trial
        self.name: str = name
        self.number: int = trial.number
        self._reported = set[int]()

    def suggest(self, ranges: Mapping[str, Range]) -> dict[str, float]:
        """Numbers to try; the same ones if somebody began with them and died."""
        return {
            name: self._trial.suggest_float(name, one.low, one.high, log=True)
            for name, one in ranges.items()
        }

    def report(self, step: int, value: float) -> bool:
        """Note what an epoch came to; True if there is no hope in going on."""
        if step not in self._reported:
            self._reported.add(step)
            self._trial.report(value, step)
        return self._trial.should_prune()

    def alive(self) -> AbstractContextManager[None]:
        """Show that somebody works on it, while they do."""
        error = import_optuna().exceptions.OptunaError
        return beating(self._trial.set_user_attr, error)


@final
class Study:
    """Names to work through, and what came of each.

    Args:
        folder: Holds the journal; share it to share the work.
        storage: Address of a database, in place of the journal.
        goals: How many numbers come of each name.

    Raises:
        MissingPackageError: If Optuna is not installed.
        StorageError: If the database cannot be reached.
        ArgumentError: If the journal is damaged.
    """

    def __init__(
        self, folder: Path, storage: str | None = None, goals: int = 2
    ) -> None:
        self._optuna = import_optuna()
        self._guide = "random", 0
        self._states: Any = self._optuna.trial.TrialState
        self._study: Any = open_study(folder, storage, goals)

    def guide_(self, sampler: str, seed: int, warmup: int | None) -> None:
        """Choose what chooses numbers, and who gives up.

        Args:
            sampler: `tpe`, `nsga2` or `random`.
            seed: Equal seeds choose the same, if the same is known of other trials.
            warmup: Epochs that every trial may have; None if all of them.
        """
        pruners = self._optuna.pruners
        self._guide = sampler, seed
        self._study.pruner = (
            pruners.NopPruner()
            if warmup is None
            else pruners.MedianPruner(_FIRST_TRIALS, n_warmup_steps=warmup + 1)
        )

    def add(self, names: Sequence[str], again: Collection[str] = ()) -> None:
        """Let names wait that nobody has worked on, or whose worker has died.

        Args:
            names: Of all trials.
            again: Those among them of which nothing is left, if they are done.
        """
        self._bury()
        trials = self._trials()
        begun = {_name(t): t for t in trials}
        known = {
            _name(t)
            for t in trials
            if t.state != self._states.FAIL
            and not (t.state == self._states.COMPLETE and _name(t) in again)
        }
        for name in names:
            if name not in known:
                self._enqueue(name, begun[name].params if name in begun else {}, 1)

    def take(self) -> Trial | None:
        """The next name; None if none waits."""
        while self._trials(self._states.WAITING) or self._take_over():
            trial = self._study.ask()
            name = _name(trial)
            if name:
                sign_(trial.set_user_attr)
                self._study.sampler = self._sampler(trial.number)
                return Trial(trial, name)
            # Another worker was faster, and Optuna made up a trial of its own.
            self._tell(trial.number, state=self._states.PRUNED)
        return None

    def done(self, trial: Trial, values: Sequence[float]) -> None:
        """Note what came of a name."""
        self._tell(trial.number, values=values)

    def stopped(self, trial: Trial) -> None:
        """Note that it is not worth going on."""
        self._tell(trial.number, state=self._states.PRUNED)

    def failed(self, trial: Trial) -> None:
        """Note that it came to nothing; it may be added again."""
        self._tell(trial.number, state=self._states.FAIL)

    def front(self) -> set[str]:
        """Names that no other beats in everything."""
        return {_name(trial) for trial in self._study.best_trials}

    def hopeless(self) -> set[str]:
        """Names that were given up."""
        return {_name(trial) for trial in self._trials(self._states.PRUNED)} - {""}

    def _trials(self, *states: object) -> list[Any]:
        return self._study.get_trials(deepcopy=False, states=states or None)

    def _sampler(self, number: int) -> Any:  # noqa: ANN401 - of Optuna
        """One with a seed for each trial, so that workers need not share a state."""
        sampler, seed = self._guide
        samplers = self._optuna.samplers
        kinds = {
            "tpe": samplers.TPESampler,
            "nsga2": samplers.NSGAIISampler,
            "random": samplers.RandomSampler,
        }
        return kinds[sampler](seed=(seed * _PRIME + number) % _SEEDS)

    def _enqueue(self, name: str, values: Mapping[str, float], attempt: int) -> None:
        notes = {"name": name, "attempt": attempt}
        self._study.enqueue_trial(dict(values), user_attrs=notes)

    def _bury(self) -> list[Any]:
        """Trials whose worker has died; no longer running, and this call says so."""
        return [
            trial
            for trial in self._trials(self._states.RUNNING)
            if not is_alive(trial.user_attrs, trial.datetime_start)
            and self._tell(trial.number, state=self._states.FAIL)
        ]

    def _take_over(self) -> bool:
        """Let trials wait again whose worker has died; whether there were any."""
        dead = [t for t in self._bury() if t.user_attrs.get("attempt", 1) < ATTEMPTS]
        for trial in dead:
            if name := _name(trial):
                attempt = trial.user_attrs.get("attempt", 1)
                self._enqueue(name, trial.params, attempt + 1)
        return bool(dead)

    def _tell(self, number: int, **what: Any) -> bool:  # noqa: ANN401 - a state, or values
        """Finish a trial; False if somebody else has done that."""
        try:
            self._study.tell(number, **what)
        except (ValueError, self._optuna.exceptions.UpdateFinishedTrialError):
            return False
        return True


def _name(trial: Any) -> str:  # noqa: ANN401 - of Optuna
    return trial.user_attrs.get("name", "")

"""Who trains which run of a sweep: a list that processes and machines share.

An Optuna study in a journal file. Names wait until a worker takes them; a name whose
worker died on this machine waits again.
"""

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, final

from diffprune._core.files import make_folder
from diffprune.errors import ArgumentError, MissingPackageError

JOURNAL: Final = "study.journal"
_STUDY: Final = "sweep"


@final
class Study:
    """Names to work through, and what came of each: an error and a cost.

    Args:
        folder: Holds the journal; share it to share the work.

    Raises:
        MissingPackageError: If Optuna is not installed.
        ArgumentError: If the journal is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._optuna = _import_optuna()
        make_folder(folder)
        backend = self._optuna.storages.journal.JournalFileBackend(
            str(folder / JOURNAL)
        )
        try:
            self._study: Any = self._optuna.create_study(
                storage=self._optuna.storages.JournalStorage(backend),
                study_name=_STUDY,
                directions=["minimize", "minimize"],
                load_if_exists=True,
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ArgumentError(
                f"`{folder / JOURNAL}` is damaged: {error}.\nDelete that file and "
                "start the sweep again; its finished runs are kept."
            ) from error

    def add(self, names: Sequence[str]) -> None:
        """Let names wait that nobody has worked on, or whose worker has died."""
        states = self._optuna.trial.TrialState
        known = set[str]()
        for trial in self._study.get_trials(deepcopy=False):
            alive = trial.state != states.RUNNING or _is_alive(trial.user_attrs)
            if trial.state != states.FAIL and alive:
                known.add(trial.user_attrs.get("name", ""))
            elif not alive:
                self._study.tell(trial.number, state=states.FAIL)
        for name in names:
            if name not in known:
                self._study.enqueue_trial({}, user_attrs={"name": name})

    def take(self) -> tuple[int, str] | None:
        """The next name with its number; None if none waits."""
        states = self._optuna.trial.TrialState
        while self._study.get_trials(deepcopy=False, states=(states.WAITING,)):
            trial = self._study.ask()
            name = trial.user_attrs.get("name")
            if name is not None:
                trial.set_user_attr("host", platform.node())
                trial.set_user_attr("process", os.getpid())
                return trial.number, name
            # Another worker was faster, and Optuna made up a trial of its own.
            self._study.tell(trial, state=states.PRUNED)
        return None

    def done(self, number: int, error: float, cost: float) -> None:
        """Note what came of a name."""
        self._study.tell(number, (error, cost))

    def failed(self, number: int) -> None:
        """Note that it came to nothing; it may be added again."""
        self._study.tell(number, state=self._optuna.trial.TrialState.FAIL)

    def front(self) -> set[str]:
        """Names that no other beats in both error and cost."""
        return {trial.user_attrs["name"] for trial in self._study.best_trials}


def _is_alive(attributes: dict[str, Any]) -> bool:
    """Whether a worker still runs, as far as this machine can tell."""
    if attributes.get("host") != platform.node():
        return True
    try:
        os.kill(attributes["process"], 0)
    except ProcessLookupError:
        return False
    return True


def _import_optuna() -> Any:  # noqa: ANN401 - a module
    try:
        import optuna  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingPackageError(
            "sweeps are shared through Optuna, which is not installed.\n"
            "Install it with `pip install 'diffprune[sweep]'`."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna

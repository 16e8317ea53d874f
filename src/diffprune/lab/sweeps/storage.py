"""Where a sweep keeps its list of trials: a file in its folder, or a database."""

from pathlib import Path
from typing import Any, Final

from diffprune._core.files import make_folder
from diffprune.errors import ArgumentError, MissingPackageError, StorageError

JOURNAL: Final = "study.journal"
_EXAMPLE: Final = "postgresql+psycopg://user:password@host/database"


def import_optuna() -> Any:  # noqa: ANN401 - a module
    """The library that shares trials, and chooses them.

    Raises:
        MissingPackageError: If it is not installed.
    """
    try:
        import optuna  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingPackageError(
            "sweeps are shared through Optuna, which is not installed.\n"
            "Install it with `pip install 'diffprune[sweep]'`."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_study(folder: Path, url: str | None, goals: int) -> Any:  # noqa: ANN401 - of Optuna
    """Open the study of a sweep, or begin it.

    Args:
        folder: Of the sweep. It holds the journal; in a database, the study has its
            name.
        url: Of a database, as Optuna and SQLAlchemy write it; None for the journal.
        goals: How many numbers come of a trial.

    Raises:
        MissingPackageError: If Optuna, or the driver of the database, is missing.
        StorageError: If there is no such database, or it cannot be reached.
        ArgumentError: If the journal is damaged, or the study has another number of
            goals.
    """
    make_folder(folder)
    study = _open_journal(folder, goals) if url is None else _open(folder, url, goals)
    if len(study.directions) != goals:
        raise ArgumentError(
            f"the sweep in `{folder}` was begun with {len(study.directions)} goals, "
            f"not {goals}.\nName another folder with `--out`."
        )
    return study


def shown(url: str) -> str:
    """An address without its password."""
    from sqlalchemy.engine import make_url  # noqa: PLC0415 - comes with Optuna
    from sqlalchemy.exc import ArgumentError as NoUrlError  # noqa: PLC0415

    try:
        return make_url(url).render_as_string(hide_password=True)
    except (NoUrlError, ValueError):
        return url.rpartition("@")[2]


def _open_journal(folder: Path, goals: int) -> Any:  # noqa: ANN401 - of Optuna
    optuna = import_optuna()
    path = folder / JOURNAL
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    try:
        storage = optuna.storages.JournalStorage(backend)
        return _study(storage, "sweep", goals)
    except (ValueError, KeyError, TypeError) as error:
        raise ArgumentError(
            f"`{path}` is damaged: {error}.\nDelete that file and "
            "start the sweep again; its finished runs are kept."
        ) from error


def _open(folder: Path, url: str, goals: int) -> Any:  # noqa: ANN401 - of Optuna
    optuna = import_optuna()
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 - comes with Optuna
    from sqlalchemy.pool import NullPool  # noqa: PLC0415

    try:
        # Networks train for hours in between: no connection is kept open for that.
        options = {"poolclass": NullPool}
        storage = optuna.storages.RDBStorage(url, engine_kwargs=options)
        return _study(storage, folder.resolve().name, goals)
    except ImportError as error:
        raise MissingPackageError(
            f"the driver of `{shown(url)}` is not installed: {error}.\nFor PostgreSQL "
            "`pip install 'diffprune[postgresql]'` and begin the address with "
            "`postgresql+psycopg://`."
        ) from error
    except (
        SQLAlchemyError, optuna.exceptions.OptunaError, ValueError, LookupError
    ) as error:  # fmt: skip
        # Braces in an address are a pattern to Optuna, which looks for their value.
        reason = str(error.__cause__ or error).strip().partition("\n")[0]
        raise StorageError(
            f"the storage `{shown(url)}` cannot be used: {reason}.\nStart it, or "
            f"mend the address, `--storage {_EXAMPLE}`; or leave `--storage` out, for "
            "a file in the folder of the sweep."
        ) from error


def _study(storage: object, name: str, goals: int) -> Any:  # noqa: ANN401 - of Optuna
    return import_optuna().create_study(
        storage=storage,
        study_name=name,
        directions=["minimize"] * goals,
        load_if_exists=True,
    )

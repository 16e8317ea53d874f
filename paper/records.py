"""The records under `paper/results`: kept when something was run, read for a table.

A *run record* is a run folder without weights and without the open probability of every
unit in every epoch, and with the commit: small enough to be kept for good. A *figures
record* is one JSON file: the figures, and the command, date, versions and commit they
were made with.
"""

import datetime as dt
import inspect
import json
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeVar

from diffprune._core.files import make_folder, write_files, write_text
from diffprune.errors import ArgumentError
from diffprune.gates import Gate
from diffprune.lab import Recipe, Run, read_run
from diffprune.lab.cli.output import say
from diffprune.lab.cli.run_jobs import Job, run_job
from diffprune.lab.runs import records as files

ResultT = TypeVar("ResultT")

ROOT: Final = Path(__file__).parent.parent
RESULTS: Final = ROOT / "paper" / "results"


def has_finished(recipe: Recipe, folder: Path) -> bool:
    """Whether a run folder, or a record, is of a finished run of this recipe.

    Args:
        recipe: What is asked for.
        folder: It need not exist.

    Raises:
        ArgumentError: If it is of another recipe, finished or not: that would be lost,
            or be taken for what is asked for.
    """
    if not (folder / files.METRICS).exists():
        return False
    run = read_run(folder)
    kept, asked = (asdict(_without_defaults(one)) for one in (run.recipe, recipe))
    for name in asked:
        if asked[name] != kept[name]:
            raise ArgumentError(
                f"`{folder}` holds another run: its `{name}` is {kept[name]!r}, and "
                f"{asked[name]!r} is asked for.\nMove it away; a table takes other "
                "folders, too, with `--results` and `--out`."
            )
    return run.outcome is not None


def _without_defaults(recipe: Recipe) -> Recipe:
    """The same recipe without options of gates that say what is so by default.

    Examples:
        >>> _without_defaults(Recipe(name="", epochs=1, gate={"sigma": 1.0})).gate
        {}
    """
    usual = {
        name: option.default
        for name, option in inspect.signature(Gate).parameters.items()
    }
    gate = {n: value for n, value in recipe.gate.items() if value != usual.get(n, ...)}
    return replace(recipe, gate=gate)


def train_and_keep(job: Job, record: Path) -> None:
    """Train what is not finished; keep a record, even if that is interrupted.

    Args:
        job: What to train.
        record: The folder of its record. If it is of a finished run, it stays as it is;
            what an unfinished one has left there goes.

    Raises:
        ArgumentError: If there is another run in one of the folders.
        StorageError: If a record cannot be written.
    """
    make_folder(record.parent)  # what refuses a record does so before hours of work
    is_done = has_finished(job.recipe, job.folder)
    is_kept = has_finished(job.recipe, record)
    is_another = not (job.folder / files.METRICS).exists()
    present = commit()
    try:
        if not is_done:
            say(f"Training in {job.folder}.")
            run_job(job)
    finally:
        if not is_kept and (job.folder / files.METRICS).exists():
            if is_another:
                shutil.rmtree(record, ignore_errors=True)
            copy_record(job.folder, record, present)
            say(f"Record written to {record}.")


def copy_record(folder: Path, target: Path, present: str) -> None:
    """Keep what is worth keeping of a run, finished or not.

    Args:
        folder: The run folder.
        target: The folder of its record; files in it are replaced, all or none.
        present: The commit of the code that ran, unless the record has one already.

    Raises:
        StorageError: If the disk refuses; the earlier record is as it was.
    """
    run = read_run(folder)
    environment = _with_commit(folder, target, present)
    epochs = [replace(epoch, prob_open={}).to_dict() for epoch in run.epochs]
    written = {
        target / files.ENVIRONMENT: (json.dumps(environment, indent=2) + "\n").encode(),
        target / files.METRICS: _lines(epochs),
        target / files.REMOVALS: _lines([r.to_dict() for r in run.removals]),
    }
    copied = {
        target / name: (folder / name).read_bytes()
        for name in (files.RECIPE, files.TASK, files.SUMMARY)
        if (folder / name).exists()
    }
    write_files({**written, **copied})


def read_records(folder: Path, command: str) -> list[Run]:
    """Read all run records in a folder, by name.

    Args:
        folder: Of a table.
        command: What to type to make records.

    Raises:
        ArgumentError: If there are none; the message names the command.
    """
    paths = sorted(folder.glob(f"*/{files.RECIPE}"))
    found = [run for path in paths if (run := read_run(path.parent)).epochs]
    if not found:
        raise ArgumentError(
            f"`{folder}` holds no records; `{command}` makes some, which takes hours."
        )
    return found


def write_figures(path: Path, command: str, **figures: object) -> None:
    """Write figures beside all that is needed to make them again.

    Args:
        path: The JSON file; an earlier one is replaced.
        command: What to type to make them again.
        figures: Anything that JSON can hold.
    """
    record = {
        "command": command,
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("diffprune", "torch")},
        },
        "commit": commit(),
        "machine": platform.machine(),
        **figures,
    }
    write_text(path, json.dumps(record, indent=2) + "\n")


def read_results(
    path: Path, command: str, make: Callable[..., ResultT]
) -> list[ResultT]:
    """Read the results among the figures that `write_figures` wrote.

    Args:
        path: The JSON file.
        command: What to type to make it.
        make: From the entries of one result to the result.

    Raises:
        ArgumentError: If there are none; the message names the command.
    """
    if not path.exists():
        raise ArgumentError(f"there is no record `{path}`; `{command}` makes one.")
    try:
        found = [make(**row) for row in json.loads(path.read_bytes())["results"]]
    except (ValueError, TypeError, KeyError) as error:
        raise ArgumentError(
            f"the record `{path}` is damaged, or of another version: "
            f"{type(error).__name__}: {error}.\n`{command}` makes it anew."
        ) from error
    if not found:
        raise ArgumentError(f"`{path}` holds no results; `{command}` makes some.")
    return found


def commit() -> str:
    """The present commit of this repository; `-dirty` if a source file has changed."""
    head = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("diff", "--name-only", "HEAD", "--", "*.py")
    return f"{head}-dirty" if changed else head or "unknown"


def _with_commit(folder: Path, target: Path, present: str) -> dict[str, Any]:
    """Where a run was made, and at which commit it began."""
    environment = json.loads((folder / files.ENVIRONMENT).read_text(encoding="utf-8"))
    kept = target / files.ENVIRONMENT
    before = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    return {**environment, "commit": before.get("commit") or present}


def _git(*arguments: str) -> str:
    done = subprocess.run(  # noqa: S603 - our own words
        ["git", *arguments],  # noqa: S607 - whichever git is there
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def _lines(lines: Sequence[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()

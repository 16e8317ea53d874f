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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from diffprune._core.files import write_text
from diffprune.errors import ArgumentError
from diffprune.gates import Gate
from diffprune.lab import Recipe, Run, read_run
from diffprune.lab.cli.output import say
from diffprune.lab.cli.run_jobs import Job, run_job
from diffprune.lab.runs import records as files

ROOT: Final = Path(__file__).parent.parent
RESULTS: Final = ROOT / "paper" / "results"


def is_on_record(recipe: Recipe, record: Path) -> bool:
    """Whether a record is of a finished run of this recipe.

    Args:
        recipe: What is asked for.
        record: The folder of the record, which need not exist.

    Raises:
        ArgumentError: If it is of a finished run of another recipe; it would be lost.
    """
    if not (record / files.SUMMARY).exists():
        return False
    kept, asked = (
        asdict(_without_defaults(one)) for one in (read_run(record).recipe, recipe)
    )
    differing = [name for name in asked if asked[name] != kept[name]]
    if not differing:
        return True
    name = differing[0]
    raise ArgumentError(
        f"`{record}` is the record of another run: its `{name}` is {kept[name]!r}, and "
        f"{asked[name]!r} is asked for.\nMove it away to train this one, or, for a "
        "table, name another folder with `--results`."
    )


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
        record: The folder of its record. What another run has left there goes.
    """
    is_another = not (job.folder / files.METRICS).exists()
    present = commit()
    try:
        if not (job.folder / files.SUMMARY).exists():
            say(f"Training in {job.folder}.")
            run_job(job)
    finally:
        if (job.folder / files.METRICS).exists():
            if is_another:
                shutil.rmtree(record, ignore_errors=True)
            copy_record(job.folder, record, present)
            say(f"Record written to {record}.")


def copy_record(folder: Path, target: Path, present: str) -> None:
    """Keep what is worth keeping of a run, finished or not.

    Args:
        folder: The run folder.
        target: The folder of its record; files in it are replaced.
        present: The commit of the code that ran, unless the record has one already.
    """
    run = read_run(folder)
    target.mkdir(parents=True, exist_ok=True)
    environment = _with_commit(folder, target, present)
    write_text(target / files.ENVIRONMENT, json.dumps(environment, indent=2) + "\n")
    for name in (files.RECIPE, files.TASK, files.SUMMARY):
        if (folder / name).exists():
            (target / name).write_bytes((folder / name).read_bytes())
    epochs = [replace(epoch, prob_open={}).to_dict() for epoch in run.epochs]
    _write_lines(target / files.METRICS, epochs)
    _write_lines(target / files.REMOVALS, [r.to_dict() for r in run.removals])


def read_records(folder: Path) -> list[Run]:
    """Read all run records in a folder, by name.

    Raises:
        ArgumentError: If there are none.
    """
    paths = sorted(folder.glob(f"*/{files.RECIPE}"))
    found = [run for path in paths if (run := read_run(path.parent)).epochs]
    if not found:
        raise ArgumentError(
            f"`{folder}` holds no records. Name another folder with `--results`, or "
            "add `--run` to make some; that takes hours."
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


def read_figures(path: Path, command: str) -> Mapping[str, Any]:
    """Read what `write_figures` wrote.

    Raises:
        ArgumentError: If there is no such file; the message names the command.
    """
    if not path.exists():
        raise ArgumentError(f"there is no record `{path}`; `{command}` makes one.")
    return json.loads(path.read_text(encoding="utf-8"))


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


def _write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")

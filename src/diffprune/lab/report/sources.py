"""The runs a report is about, each under a name of its own; draws no conclusions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from diffprune.errors import ArgumentError
from diffprune.lab.runs.records import Epoch, Run, read_run


@dataclass(frozen=True, kw_only=True)
class Source:
    """A run, where it was read, and what a report calls it."""

    name: str
    folder: Path
    run: Run

    @property
    def is_dense(self) -> bool:
        """Whether it was trained without gates."""
        return self.run.recipe.strength is None

    @property
    def last(self) -> Epoch:
        """The latest epoch."""
        return self.run.epochs[-1]


def read_sources(folders: Sequence[Path]) -> tuple[Source, ...]:
    """Read runs, finished or not.

    Raises:
        ArgumentError: If there are none, or one of them has nothing to show yet.
    """
    if not folders:
        raise ArgumentError("a report needs at least one run folder, got none.")
    names = _names([folder.resolve() for folder in folders])
    return tuple(
        Source(name=name, folder=folder, run=_read_begun(folder))
        for name, folder in zip(names, folders, strict=True)
    )


def _read_begun(folder: Path) -> Run:
    run = read_run(folder)
    if not run.epochs:
        raise ArgumentError(
            f"the run in `{folder}` has not finished an epoch; there is nothing to "
            "report yet. Try again after the first one."
        )
    return run


def _names(folders: Sequence[Path]) -> list[str]:
    """Folder names; with their parents', and then with numbers, until they differ."""
    names = [folder.name for folder in folders]
    if len(set(names)) < len(names):
        names = [f"{folder.parent.name}/{folder.name}" for folder in folders]
    seen: Counter[str] = Counter()
    for index, name in enumerate(names):
        seen[name] += 1
        if seen[name] > 1:
            names[index] = f"{name} ({seen[name]})"
    return names

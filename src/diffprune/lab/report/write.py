"""From run folders to one HTML file: the order in which things happen."""

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from diffprune._core.door import door
from diffprune._core.files import write_text
from diffprune.errors import ArgumentError, MissingPackageError
from diffprune.lab.report.frontier import Reference
from diffprune.lab.runs.records import Run, read_runs

_ENDINGS: Final = (".html", ".htm")
_PACKAGES: Final = ("altair", "jinja2", "vl_convert")


@door
def write_report(
    runs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    references: Sequence[Reference] = (),
    measure: bool = True,
    trust: bool = False,
) -> Path:
    """Write what runs asked for and what came out, as a page that needs nothing else.

    Args:
        runs: Run folders, finished or not, as `diffprune train` writes them.
            A run without gates among them is what the others are compared with.
        out: The HTML file; an earlier one is replaced.
        references: Networks of others on the same task, to show beside the runs where
            error stands against cost.
        measure: Whether to rebuild the networks and time them on this machine, where a
            run says how. That runs the code of its task.
        trust: Whether to run that code even if it is outside the present folder, or
            inside the run. Otherwise the page says that nothing was measured, and why.

    Returns:
        The file.

    Raises:
        ArgumentError: If there is no run, nothing in one yet, or `out` does not end in
            `.html`.
        StorageError: If the disk refuses; an earlier page is as it was.
        MissingPackageError: If altair is not installed.
    """
    if Path(out).suffix.lower() not in _ENDINGS:
        raise ArgumentError(
            f"out must be an HTML file, such as `report.html`; got `{out}`, which may "
            "be something else."
        )
    html = _html(_read_begun(runs), references, measure=measure, trust=trust)
    path = Path(out)
    write_text(path, html)
    return path


def _read_begun(folders: Sequence[str | os.PathLike[str]]) -> tuple[Run, ...]:
    if not folders:
        raise ArgumentError("a report needs at least one run folder, got none.")
    runs = read_runs(folders)
    for run in runs:
        if not run.epochs:
            raise ArgumentError(
                f"the run in `{run.folder}` has not finished an epoch; there is "
                "nothing to report yet. Try again after the first one."
            )
    return runs


def _html(
    runs: Sequence[Run], references: Sequence[Reference], *, measure: bool, trust: bool
) -> str:
    for package in _PACKAGES:
        if find_spec(package) is None:
            raise MissingPackageError(
                f"a report is drawn with {package}, which is not installed.\n"
                "Install it with `pip install 'diffprune[report]'`."
            )
    from diffprune.lab.report.assemble import compose  # noqa: PLC0415 - needs the packages
    from diffprune.lab.report.page import render  # noqa: PLC0415

    return render(compose(runs, references, measure=measure, trust=trust))

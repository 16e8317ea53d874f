"""From run folders to one HTML file: the order in which things happen."""

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from diffprune.errors import ArgumentError, MissingPackageError
from diffprune.lab.report.sources import read_sources

_PACKAGES: Final = ("altair", "jinja2", "vl_convert")


def write_report(
    runs: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    measure: bool = True,
) -> Path:
    """Write what runs asked for and what came out, as a page that needs nothing else.

    Args:
        runs: Run folders, finished or not, as `diffprune train` writes them.
            A run without gates among them is what the others are compared with.
        out: The HTML file; an earlier one is replaced.
        measure: Whether to rebuild the networks and time them on this machine, where a
            run says how. That runs the code of its task: not for runs of strangers.

    Returns:
        The file.

    Raises:
        ArgumentError: If there is no run, nothing in one yet, or nowhere to write.
        MissingPackageError: If altair is not installed.
    """
    html = _html([Path(run) for run in runs], measure=measure)
    path = Path(out)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(html, encoding="utf-8")
    except OSError as error:
        raise ArgumentError(
            f"cannot write `{path}`: {error.strerror}. Name another file."
        ) from error
    return path


def _html(folders: Sequence[Path], *, measure: bool) -> str:
    for package in _PACKAGES:
        if find_spec(package) is None:
            raise MissingPackageError(
                f"a report is drawn with {package}, which is not installed.\n"
                "Install it with `pip install 'diffprune[report]'`."
            )
    from diffprune.lab.report.assemble import compose  # noqa: PLC0415 - needs the packages
    from diffprune.lab.report.page import render  # noqa: PLC0415

    return render(compose(read_sources(folders), measure=measure))

"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON, and nothing else.")
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        envvar="DIFFPRUNE_DATA",
        help="Folder of the data; else it is fetched into the cache.",
    ),
]
RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder that `diffprune train` wrote.")
]
RunFolders = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help="Folders that `diffprune train` wrote."),
]
TaskOfRun = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="FILE.PY:FUNCTION",
        help="Where the task of the run is now, if it has moved.",
    ),
]

"""Files that appear whole, without chatter, or not at all. Knows no format."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from diffprune._graph.trace import quiet


@contextmanager
def written_whole(path: Path) -> Generator[Path]:
    """A place to write a file to, which gets its name once nothing failed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".partial-") as folder:
        with quiet():
            yield Path(folder) / path.name
        for file in Path(folder).iterdir():
            file.replace(path.parent / file.name)

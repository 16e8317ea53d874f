"""Files that appear whole, without chatter, or not at all. Knows no format."""

import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from diffprune._core.files import make_folder, storing, sync
from diffprune._graph.trace import quiet


@contextmanager
def written_whole(path: Path) -> Generator[Path]:
    """A place to write a file to, which gets its name once it is whole and on the disk.

    Raises:
        StorageError: If the disk refuses; the earlier file is as it was.
    """
    make_folder(path.parent)
    with (
        storing(path),
        tempfile.TemporaryDirectory(dir=path.parent, prefix=".partial-") as folder,
    ):
        with quiet():
            yield Path(folder) / path.name
        files = list(Path(folder).iterdir())
        for file in files:
            sync(file)
        for file in files:
            file.replace(path.parent / file.name)
        sync(path.parent)

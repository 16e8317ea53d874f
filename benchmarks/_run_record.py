"""A record of many runs, which is kept after each, so that another day can go on."""

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from diffprune._core.interleaved import one_thread
from paper.records import read_results

from ._records import write

ResultT = TypeVar("ResultT")
KeyT = TypeVar("KeyT", bound=Hashable)


@dataclass(frozen=True)
class RunRecord(Generic[KeyT, ResultT]):
    """Where the results of a benchmark's runs are, and how to make them.

    Attributes:
        path: The file.
        command: What makes it.
        recipe: What all runs have in common.
        result: Makes a result of what the file says of it: a dataclass.
        key: What a run is about; there is one of each.
        run: Makes the result of such a run.
    """

    path: Path
    command: str
    recipe: Mapping[str, object]
    result: Callable[..., ResultT]
    key: Callable[[ResultT], KeyT]
    run: Callable[[KeyT], ResultT]

    def read(self, path: Path | None = None) -> list[ResultT]:
        """What is recorded.

        Raises:
            ArgumentError: If there is no record.
        """
        return read_results(path or self.path, self.command, self.result)

    def completed(self, wanted: Iterable[KeyT]) -> list[ResultT]:
        """What is recorded, once all that is wanted is; on one thread."""
        found = self.read() if self.path.exists() else []
        known = {self.key(one): one for one in found}
        with one_thread():
            for asked in wanted:
                if asked not in known:
                    known[asked] = self.run(asked)
                    print(json.dumps(_plain(known[asked])), flush=True)
                    self._write([*known.values()])
        return [*known.values()]

    def show(self, rows: Iterable[Sequence[str]]) -> None:
        """Print a table, and where the record is."""
        for row in rows:
            print(" | ".join(row))
        print(f"Record written to {self.path}.")

    def _write(self, found: Sequence[ResultT]) -> None:
        results = [_plain(one) for one in found]
        write(self.path, self.command, recipe=self.recipe, results=results)


def _plain(result: Any) -> dict[str, Any]:  # noqa: ANN401 - some dataclass
    return asdict(result)

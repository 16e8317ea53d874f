"""The command: runs what is not recorded yet, then prints and writes the table."""

import warnings
from itertools import product
from pathlib import Path
from typing import Annotated

import rich
import typer

from benchmarks.coverage import ours, record, table
from benchmarks.coverage.case import select
from benchmarks.coverage.runner import Library, isolated
from benchmarks.coverage.zoos import all_cases

FOLDER = Path("results/coverage")


def main(
    only: Annotated[
        str, typer.Option(help="Shell pattern on names or zoo/name.")
    ] = "*",
    *,
    peer: Annotated[bool, typer.Option(help="Also run Torch-Pruning.")] = True,
    us: Annotated[bool, typer.Option(help="Run diffprune.")] = True,
    again: Annotated[bool, typer.Option(help="Repeat what is recorded.")] = False,
    new: Annotated[bool, typer.Option(help="Only what no version ran on.")] = False,
    timeout: Annotated[int, typer.Option(help="CPU seconds for one model.")] = 300,
    memory: Annotated[int, typer.Option(help="GiB for one model.")] = 12,
    folder: Annotated[Path, typer.Option(help="Where the records are.")] = FOLDER,
) -> None:
    """Say what share of public architectures can be pruned, and whether exactly."""
    warnings.filterwarnings("ignore")  # the zoos' own, about their own dependencies
    records = folder / "records.jsonl"
    known = {(r.library, r.version, r.key) for r in record.load(records)}
    ever = {(name, key) for name, _, key in known}
    for case, library in product(
        select(all_cases(), only), _libraries(us=us, peer=peer)
    ):
        if new and (library.name, case.key) in ever:
            continue
        if again or (library.name, library.version, case.key) not in known:
            result = isolated(case, library, timeout, memory)
            record.append(records, result)
            typer.echo(_line(result))
    _report(record.load(records), folder)


def _libraries(*, us: bool, peer: bool) -> list[Library]:
    chosen = [Library(ours.NAME, ours.commit(), ours.cut)] if us else []
    if peer:
        from benchmarks.coverage import peer as other  # noqa: PLC0415 (optional)

        chosen.append(Library(other.NAME, other.VERSION, other.cut))
    return chosen


def _line(result: record.Record) -> str:
    outcome = f"{result.status} {result.reason}".strip()
    return f"{result.key:45} {result.library:14} {outcome}"


def _report(records: list[record.Record], folder: Path) -> None:
    text = table.markdown(records, ours.NAME)
    (folder / "README.md").write_text(text, encoding="utf-8")
    rich.print(table.terminal(records))
    rich.print(f"details in {folder / 'README.md'}")


if __name__ == "__main__":
    typer.run(main)

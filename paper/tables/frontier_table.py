"""The frontier of Table 1: from runs to points beside published ones, and a table."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.table import Table

from diffprune.errors import ArgumentError
from diffprune.lab import Run
from paper.frontier import AIMS, PREFIX, RECORDS, aim_of
from paper.models.lenet5 import Widths
from paper.published import lenet5_on_mnist
from paper.records import RESULTS, read_records


@dataclass(frozen=True, kw_only=True)
class Point:
    """A network, whoever made it; its costs follow from its architecture.

    Attributes:
        name: Who made it.
        architecture: Its units.
        weights: Those that are not zero.
        tensors: Numbers in the tensors of weights: as many, unless single ones left.
        macs: Multiply-adds of the tensors as they are.
        error: On the test images, in percent.
        is_ours: Whether it was made here.
    """

    name: str
    architecture: str
    weights: int
    tensors: int
    macs: int
    error: float
    is_ours: bool


def read_frontier(results: Path = RESULTS) -> list[Run]:
    """Read the records of the frontier.

    Args:
        results: The folder of all records of the paper.

    Raises:
        ArgumentError: If there are none.
    """
    return read_records(results / RECORDS.name, "python -m paper frontier --run")


def points(runs: Sequence[Run]) -> list[Point]:
    """All that is published, and our runs in their last epoch, the smallest first.

    Raises:
        ArgumentError: If a run is on record and not that which closed its network.
    """
    found = [_point(p.method, p.widths, p.error) for p in lenet5_on_mnist()]
    ours = [run for run in runs if run.recipe.name.startswith(PREFIX)]
    done = [(run, run.outcome.effective) for run in ours if run.outcome is not None]
    closed = {_network(run): Widths(*left.values()) for run, left in done if left}
    for run, _ in done:
        if _network(run) not in closed:
            raise ArgumentError(
                f"`{run.folder}` continues from a network that is not on record.\nMove "
                f"it away, or bring back the record `{'-seed'.join(_network(run))}`."
            )
        name = run.recipe.name.replace(PREFIX, "diffprune, ").replace("-", " ")
        error = run.epochs[-1].test_error
        own = closed[_network(run)]
        point = _point(f"{name} {run.recipe.seed}", own, error, is_ours=True)
        found.append(replace(point, weights=_weights(run, own)))
    return sorted(found, key=lambda point: point.weights)


def _weights(run: Run, left: Widths) -> int:
    """Weights of a run that are left; one by one they leave in the last training."""
    if AIMS[aim_of(run.recipe)].weights is None or not run.recipe.is_dense:
        return left.weights
    assert run.outcome is not None  # noqa: S101 - of finished runs
    return run.outcome.parameters - (left.parameters - left.weights)


def _network(run: Run) -> tuple[str, str]:
    """Which closed network a run is of: its aim and seed."""
    return aim_of(run.recipe), str(run.recipe.seed)


def _point(name: str, widths: Widths, error: float, *, is_ours: bool = False) -> Point:
    return Point(
        name=name,
        architecture=str(widths),
        weights=widths.weights,
        tensors=widths.weights,
        macs=widths.macs,
        error=error,
        is_ours=is_ours,
    )


def frontier_table(found: Sequence[Point]) -> Table:
    """Show a row for every network."""
    shown = Table("", "architecture")
    for name in ("weights", "MACs", "error %"):
        shown.add_column(name, justify="right")
    for point in found:
        shown.add_row(
            point.name,
            point.architecture,
            _counted(point),
            f"{point.macs:,}",
            f"{point.error:.2f}",
            style="bold" if point.is_ours else None,
        )
    return shown


def _counted(point: Point) -> str:
    whole = f" of {point.tensors:,}" if point.weights < point.tensors else ""
    return f"{point.weights:,}{whole}"

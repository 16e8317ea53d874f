"""Figures that are measured in minutes: where each is kept, how made, and how shown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final, final

from rich.table import Table

from diffprune._core.files import make_folder
from paper import calibration, step_times
from paper.ablations import fading, live_removal, sigma, zeta
from paper.records import RESULTS, read_records, read_results, write_figures
from paper.tables.wide_resnet_table import WRN_10_1, WRN_10_2, SmallNetwork


@final
@dataclass(frozen=True, kw_only=True)
class Figures:
    """What one command measures and prints.

    Attributes:
        command: What is typed after `python -m paper`.
        file: Its record, in the folder of all records.
        measure: Makes what is kept; the results among it are `results`.
        result: From the entries of one of them to the result.
        show: From results to a table.
    """

    command: str
    file: str
    measure: Callable[[], Mapping[str, Any]]
    result: Callable[..., Any]
    show: Callable[[Sequence[Any]], Table]

    @property
    def typed(self) -> str:
        """What to type to measure anew."""
        return f"python -m paper {self.command} --run"

    def write(self, folder: Path) -> Path:
        """Measure, for minutes, and return the record.

        Args:
            folder: Of all records.
        """
        make_folder((folder / self.file).parent)  # before minutes of work
        write_figures(folder / self.file, self.typed, **self.measure())
        return folder / self.file

    def table(self, folder: Path) -> Table:
        """Show what is on record.

        Args:
            folder: Of all records.

        Raises:
            ArgumentError: If nothing is, or it is damaged.
        """
        return self.show(read_results(folder / self.file, self.typed, self.result))


def _ablation(name: str, module: ModuleType) -> Figures:
    return Figures(
        command=f"ablation {name}",
        file=f"{name}.json",
        measure=lambda: {"results": [vars(one) for one in module.measure()]},
        result=module.Result,
        show=module.table,
    )


def _epochs(name: str, table: str, small: SmallNetwork) -> Figures:
    return Figures(
        command=f"steps {name}",
        file=f"{table}/epochs.json",
        measure=partial(_timed, table, small),
        result=step_times.EpochTiming,
        show=step_times.epochs_table,
    )


def _timed(table: str, small: SmallNetwork) -> dict[str, Any]:
    """Time the networks that the runs of a table left."""
    runs = read_records(RESULTS / table, f"python -m paper table {table} --run")
    return step_times.measure_epochs(small, runs)


ABLATIONS: Final = {
    "sigma": _ablation("sigma", sigma),
    "fading": _ablation("fading", fading),
    "zeta": _ablation("zeta", zeta),
    "live_removal": _ablation("live_removal", live_removal),
}
"""By the name that `python -m paper ablation` takes."""

CALIBRATION: Final = Figures(
    command="calibrate",
    file="wrn/calibration.json",
    measure=lambda: {"results": [vars(one) for one in calibration.measure()]},
    result=calibration.Result,
    show=calibration.table,
)

STEPS: Final = {
    "wrn-28-10": Figures(
        command="steps wrn-28-10",
        file="wrn/step.json",
        measure=step_times.measure_paper,
        result=step_times.Timing,
        show=step_times.paper_table,
    ),
    "wrn-10-2": _epochs("wrn-10-2", "wrn", WRN_10_2),
    "wrn-10-1": _epochs("wrn-10-1", "wrn-10-1", WRN_10_1),
}
"""By the name that `python -m paper steps` takes."""

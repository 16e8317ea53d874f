"""What a sweep found (`Front`): error against cost, as a table, a figure and JSON."""

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from diffprune._core.door import door
from diffprune._core.files import written_whole
from diffprune.errors import ArgumentError, MissingPackageError
from diffprune.lab.runs.records import Outcome, Run
from diffprune.lab.sweeps.search import searched_value
from diffprune.lab.training.recipe import Recipe

_ENDINGS: Final = (".svg", ".png", ".html")


@dataclass(frozen=True)
class Front:
    """The finished runs of a sweep.

    Attributes:
        runs: From the largest network to the smallest.
        best: Names of those that no other beats in everything that counts: in both
            error and multiply-adds, or in the goals of a search.
        searched: What a search looked for; the table shows it.
        given_up: Names of trials that a search stopped early, because they were
            hopeless; their runs are unfinished.
    """

    runs: tuple[Run, ...]
    best: frozenset[str]
    searched: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()

    def to_dict(self) -> list[dict[str, Any]]:
        """Plain data, for JSON: what each run has come to."""
        return [
            {"name": run.name, "is_best": run.name in self.best, **run.to_dict()}
            for run in self.runs
        ]

    def table(self) -> Table:
        """A line for each run; a star for those on the front."""
        table = Table(box=None, pad_edge=False)
        rows = [self._row(run) for run in self.runs]
        named = {name: None for row in rows for name in row}  # in order, and each once
        for name in named:
            table.add_column(name, justify="left" if name == "run" else "right")
        for row in rows:
            table.add_row(*(row.get(name, "") for name in named))
        return table

    def _row(self, run: Run) -> dict[str, str]:
        end = outcome_of(run)
        errors = {"validation": end.validation_error, "test": end.test_error}
        return {
            "run": run.name,
            **{name: _value(run.recipe, name) for name in self.searched},
            "MACs": f"{end.macs:,}",
            "parameters": f"{end.parameters:,}",
            **{f"{n} %": f"{e:.2f}" for n, e in errors.items() if e is not None},
            "front": "*" if run.name in self.best else "",
        }

    @door
    def figure(self, path: str | os.PathLike[str]) -> None:
        """Draw test error against multiply-adds, as SVG, PNG or HTML by its ending.

        Raises:
            ArgumentError: If it ends otherwise.
            MissingPackageError: If altair is not installed.
            StorageError: If the disk refuses.
        """
        check_figure(Path(path))
        import altair as alt  # noqa: PLC0415 - optional

        base = alt.Chart(alt.Data(values=[self._point(run) for run in self.runs]))
        base = base.encode(
            x=alt.X("MACs:Q", scale=alt.Scale(type="log")),
            y=alt.Y("test error %:Q", scale=alt.Scale(zero=False)),
        )
        line = base.mark_line(opacity=0.4).transform_filter("datum.front")
        points = base.mark_point(filled=True, size=60).encode(
            opacity=alt.condition("datum.front", alt.value(1.0), alt.value(0.4))
        )
        labels = base.mark_text(align="left", dx=6, dy=-6).encode(text="run:N")
        chart = (line + points + labels).properties(width=480, height=300)
        with written_whole(Path(path)) as partial:
            chart.save(str(partial))

    def _point(self, run: Run) -> dict[str, Any]:
        end = outcome_of(run)
        return {
            "run": run.name,
            "MACs": end.macs,
            "test error %": end.test_error,
            "front": run.name in self.best,
        }


def check_figure(path: Path) -> None:
    """Refuse what no figure can be drawn to, before anything is trained for it.

    Raises:
        ArgumentError: If it ends otherwise.
        MissingPackageError: If altair is not installed.
    """
    if path.suffix not in _ENDINGS:
        raise ArgumentError(
            f"path must end in one of {', '.join(_ENDINGS)}, got `{path}`."
        )
    if find_spec("altair") is None:
        raise MissingPackageError(
            "figures are drawn by altair, which is not installed.\n"
            "Install it with `pip install 'diffprune[report]'`."
        )


def outcome_of(run: Run) -> Outcome:
    """What a finished run ended with; a front has no others."""
    assert run.outcome is not None  # noqa: S101 - unfinished ones are left out
    return run.outcome


def _value(recipe: Recipe, name: str) -> str:
    """A number of a recipe, or a limit of its budget, for the table."""
    value = searched_value(recipe, name)
    return value if isinstance(value, str) else f"{value:.3g}"

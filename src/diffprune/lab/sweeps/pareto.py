"""What a sweep found: accuracy against cost, as a table and as a figure."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rich.table import Table

from diffprune.errors import MissingPackageError
from diffprune.lab.runs.records import Outcome


@dataclass(frozen=True, kw_only=True)
class Row:
    """One run of a sweep; errors are percentages.

    Attributes:
        name: What it was asked for.
        macs: Multiply-adds for one example.
        parameters: Of its network.
        validation_error: If there is data to choose with.
        test_error: Of its network.
        is_best: Whether no other run is better in both error and multiply-adds.
    """

    name: str
    macs: int
    parameters: int
    validation_error: float | None
    test_error: float
    is_best: bool


@dataclass(frozen=True)
class Front:
    """The runs of a sweep, from the largest to the smallest."""

    rows: tuple[Row, ...]

    def table(self) -> Table:
        """A line for each run."""
        table = Table()
        for name in ("run", "MACs", "parameters", "validation %", "test %", "front"):
            table.add_column(name, justify="left" if name == "run" else "right")
        for row in self.rows:
            validation = row.validation_error
            table.add_row(
                row.name,
                f"{row.macs:,}",
                f"{row.parameters:,}",
                "" if validation is None else f"{validation:.2f}",
                f"{row.test_error:.2f}",
                "*" if row.is_best else "",
            )
        return table

    def figure(self, path: str | os.PathLike[str]) -> None:
        """Draw test error against multiply-adds, as SVG, PNG or HTML by its ending.

        Raises:
            MissingPackageError: If altair is not installed.
        """
        try:
            import altair as alt  # noqa: PLC0415 - optional
        except ImportError as error:
            raise MissingPackageError(
                "figures are drawn by altair, which is not installed.\n"
                "Install it with `pip install 'diffprune[report]'`."
            ) from error
        values = [
            {
                "run": row.name,
                "MACs": row.macs,
                "test error %": row.test_error,
                "front": row.is_best,
            }
            for row in self.rows
        ]
        base = alt.Chart(alt.Data(values=values)).encode(
            x=alt.X("MACs:Q", scale=alt.Scale(type="log")),
            y=alt.Y("test error %:Q", scale=alt.Scale(zero=False)),
        )
        line = base.mark_line(opacity=0.4).transform_filter("datum.front")
        points = base.mark_point(filled=True, size=60).encode(
            opacity=alt.condition("datum.front", alt.value(1.0), alt.value(0.4))
        )
        labels = base.mark_text(align="left", dx=6, dy=-6).encode(text="run:N")
        (line + points + labels).properties(width=480, height=300).save(str(path))


def make_front(outcomes: Mapping[str, Outcome], best: Collection[str]) -> Front:
    """Sort what came out.

    Args:
        outcomes: By the name of the run.
        best: Names of those that nothing beats.
    """
    rows = [
        Row(
            name=name,
            macs=outcome.macs,
            parameters=outcome.parameters,
            validation_error=outcome.validation_error,
            test_error=outcome.test_error,
            is_best=name in best,
        )
        for name, outcome in outcomes.items()
    ]
    return Front(tuple(sorted(rows, key=lambda row: -row.macs)))
